/* Rows of a matrix that integers choose, such as those of an embedding, and bounds of integers, in
 * recordings: mlx's operations where the caller can compute them. */
#include <cstring>
#include <limits>
#include <unordered_map>

#include "recording.h"

namespace cowmlx {
namespace {

constexpr int64_t CHUNK = 1 << 14; /* numbers that one thread copies at a time */

/* Integers of an operation side by side; copied before where they lie otherwise. */
struct Ids {
  std::optional<Copy> copy;
  Integers values;

  Ids(const mx::array& ids, mx::cpu::CommandEncoder& encoder) : values(ids) {
    if (ids.flags().row_contiguous) return;
    mx::array laid(ids.shape(), ids.dtype(), nullptr, {});
    laid.set_data(mx::allocator::malloc(laid.nbytes()));
    copy.emplace(Copy{Lines(ids), laid.data<char>()});
    values = Integers(laid);
    encoder.add_temporary(std::move(laid));
  }
};

struct GatherJob {
  std::optional<Copy> copy;
  Ids ids;
  const float* from;
  float* to;
  int64_t count, rows, width; /* count: of ids */

  /* Where a row is; null where there is none. */
  const float* row(int64_t at) const {
    int64_t row = ids.values.at(at);
    if (row < 0) row += rows;
    return row < 0 || row >= rows ? nullptr : from + row * width;
  }

  void operator()() const {
    const Series series;
    if (copy) copy->run();
    if (ids.copy) ids.copy->run();
    const int64_t each = std::max<int64_t>(1, CHUNK / width);
    parallel(static_cast<int>((count + each - 1) / each), [&](int chunk) {
      for (int64_t at = chunk * each; at < std::min((chunk + 1) * each, count); at++) {
        if (const float* found = row(at))
          std::copy_n(found, width, to + at * width);
        else
          std::fill_n(to + at * width, width, std::numeric_limits<float>::quiet_NaN());
      }
    });
  }
};

class GatherRows : public Operation {
 public:
  using Operation::Operation;

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    const mx::array& from = inputs[0];
    GatherJob job{{},
                  Ids(inputs[1], encoder),
                  nullptr,
                  out.data<float>(),
                  static_cast<int64_t>(inputs[1].size()),
                  from.shape(0),
                  static_cast<int64_t>(from.size()) / from.shape(0)};
    job.from = lying(from, encoder, job.copy);
    dispatch(encoder, std::move(job));
  }

  const char* name() const override { return "CowmlxGatherRows"; }
};

/* Whether a step takes whole rows of float32 at places of the first axis. */
bool takes_rows(const Recorded& step, const std::vector<mx::array>& arrays) {
  if (!is(*step.primitive, "Gather") || step.inputs.size() != 2) return false;
  /* mlx does not export the type; the name says it. */
  const auto [axes, sides] = static_cast<const mx::Gather&>(*step.primitive).state();
  const mx::array &from = arrays[step.inputs[0]], &ids = arrays[step.inputs[1]];
  mx::Shape row = from.shape();
  if (from.dtype() != mx::float32 || from.size() == 0 || ids.size() == 0) return false;
  row[0] = 1;
  return axes == std::vector<int>{0} && sides == row && mx::issubdtype(ids.dtype(), mx::integer);
}

/* The greater or the less of each integer and one number. */
class Bounded : public Operation {
 public:
  Bounded(mx::Stream stream, bool greater) : Operation(stream), greater_(greater) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    const auto count = static_cast<int64_t>(out.size());
    dispatch(encoder, [ids = Ids(inputs[0], encoder), bound = inputs[1].data<char>(), count,
                       to = out.data<char>(), greater = greater_] {
      if (ids.copy) ids.copy->run();
      ids.values.visit([&]<class T>(const T* from) {
        const T limit = *reinterpret_cast<const T*>(bound);
        T* made = reinterpret_cast<T*>(to);
        for (int64_t at = 0; at < count; at++)
          made[at] = greater ? std::max(from[at], limit) : std::min(from[at], limit);
      });
    });
  }

  const char* name() const override { return "CowmlxBounded"; }

 private:
  bool greater_;
};

}  // namespace

void replace_gathers(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays) {
  std::unordered_map<uint32_t, uint32_t> spread; /* one number that is broadcast */
  for (Recorded& step : steps) {
    const bool greater = is(*step.primitive, "Maximum");
    if (is(*step.primitive, "Broadcast") && arrays[step.inputs[0]].size() == 1) {
      spread[step.outputs[0]] = step.inputs[0];
    } else if (takes_rows(step, arrays)) {
      step.primitive = std::make_shared<GatherRows>(step.primitive->stream());
    } else if ((greater || is(*step.primitive, "Minimum")) &&
               mx::issubdtype(step.dtypes[0], mx::integer) && arrays[step.outputs[0]].size() > 0) {
      auto [values, bound] = std::pair(step.inputs[0], step.inputs[1]);
      if (spread.contains(values)) std::swap(values, bound);
      if (!spread.contains(bound)) continue;
      step.inputs = {values, spread[bound]};
      step.primitive = std::make_shared<Bounded>(step.primitive->stream(), greater);
    }
  }
}

}  // namespace cowmlx
