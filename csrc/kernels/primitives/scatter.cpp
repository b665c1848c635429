/* Rows that are added up at places of a matrix, as in the gradient of an embedding, in recordings:
 * with the bits of mlx's scatter, which adds one number after the other. */
#include "recording.h"

namespace cowmlx {
namespace {

constexpr int64_t WORK = 1 << 14; /* numbers that are worth a thread */

struct ScatterJob {
  std::optional<Copy> base; /* to the result */
  const float* number;      /* which all of it begins with, without a base */
  std::optional<Copy> copy, copy_of_ids;
  Integers ids;
  const float* from;
  float* to;
  int64_t count, rows, width; /* count: of ids */
  int workers;

  /* Add the updates of rows [begin, end) of the result, in the order of ids; skip ids out of range.
   */
  void add(const Table& table, int64_t begin, int64_t end) const {
    ids.visit([&]<class T>(const T* places) {
      for (int64_t at = 0; at < count; at++) {
        auto row = static_cast<int64_t>(places[at]);
        if (row < 0) row += rows;
        if (row < begin || row >= end) continue;
        float* sum = to + row * width;
        table.add(sum, from + at * width, 1, static_cast<int>(width), sum);
      }
    });
  }

  void operator()() const {
    const Series series;
    if (base) base->run();
    if (copy) copy->run();
    if (copy_of_ids) copy_of_ids->run();
    const int64_t most = std::max<int64_t>(count * width / WORK, 1);
    const auto parts = static_cast<int>(std::min<int64_t>({most, workers, rows}));
    const Table& used = table();
    share(parts, workers, [&](int part, int) {
      const int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;
      if (!base) std::fill_n(to + begin * width, (end - begin) * width, *number);
      add(used, begin, end);
    });
  }
};

class ScatterRows : public Operation {
 public:
  using Operation::Operation;

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    mx::array ids = inputs[1];
    std::optional<Copy> copy_of_ids;
    if (!ids.flags().row_contiguous) {
      ids = mx::array(ids.shape(), ids.dtype(), nullptr, {});
      ids.set_data(mx::allocator::malloc(ids.nbytes()));
      copy_of_ids.emplace(Copy{Lines(inputs[1]), ids.data<char>()});
      encoder.add_temporary(ids);
    }
    const mx::array& base = inputs[0];
    const bool is_one = base.data_size() == 1; /* number, which is broadcast */
    ScatterJob job{{},
                   base.data<float>(),
                   {},
                   std::move(copy_of_ids),
                   Integers(ids),
                   nullptr,
                   out.data<float>(),
                   static_cast<int64_t>(ids.size()),
                   out.shape(0),
                   static_cast<int64_t>(out.size()) / out.shape(0),
                   threads()};
    if (!is_one) job.base.emplace(Copy{Lines(base), out.data<char>()});
    job.from = lying(inputs[2], encoder, job.copy);
    dispatch(encoder, std::move(job));
  }

  const char* name() const override { return "CowmlxScatterRows"; }
};

/* Whether a step adds whole rows of float32 at places of the first axis. */
bool adds_rows(const Recorded& step, const std::vector<mx::array>& arrays) {
  if (!is(*step.primitive, "Scatter Sum") || step.inputs.size() != 3) return false;
  /* mlx does not export the type; the name says it. */
  const auto& scatter = static_cast<const mx::Scatter&>(*step.primitive);
  if (scatter.state().second != std::vector<int>{0}) return false;
  const mx::array &base = arrays[step.inputs[0]], &ids = arrays[step.inputs[1]];
  const mx::array& updates = arrays[step.inputs[2]];
  if (base.dtype() != mx::float32 || updates.dtype() != mx::float32) return false;
  if (base.size() == 0 || updates.size() == 0 || base.size() / base.shape(0) > INT32_MAX)
    return false;
  mx::Shape rows = ids.shape();
  rows.push_back(1);
  rows.insert(rows.end(), base.shape().begin() + 1, base.shape().end());
  return updates.shape() == rows && mx::issubdtype(ids.dtype(), mx::integer);
}

}  // namespace

void replace_scatters(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays) {
  for (Recorded& step : steps)
    if (adds_rows(step, arrays))
      step.primitive = std::make_shared<ScatterRows>(step.primitive->stream());
}

}  // namespace cowmlx
