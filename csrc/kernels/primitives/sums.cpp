/* Sums of float32 over axes that lie beside each other, in recordings: with the bits of mlx's,
 * which adds one number after the other where it has no vectors. */
#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "mlx/backend/cpu/simd/simd.h"
#include "recording.h"

namespace cowmlx {
namespace {

constexpr int ROWS = 8;        /* that are added up beside each other: one would wait for itself */
constexpr int COLUMNS = 512;   /* that one thread takes at a time */
constexpr int CHUNK = 1 << 14; /* numbers of rows that one thread takes at a time, about */

constexpr int LEAST = 32;  /* columns that one thread takes, where all have enough */
constexpr int NARROW = 64; /* columns whose sums stay in registers */

/* Lines of numbers that are added up, `times` over. */
struct Columns {
  const float* data;
  int64_t pitch, count, times; /* pitch: numbers from a line to the next */
};

/* Add up N columns side by side, from one on. */
template <int N>
[[gnu::always_inline]] inline void add_columns(const Columns& lines, int column, float* to) {
  float totals[N] = {};
  for (int64_t time = 0; time < lines.times; time++) {
    const float* from = lines.data + column;
    for (int64_t line = 0; line < lines.count; line++, from += lines.pitch)
      for (int i = 0; i < N; i++) totals[i] += from[i];
  }
  std::copy_n(totals, N, to + column);
}

[[gnu::always_inline]] inline void add_narrow(const Columns& lines, int n, float* to) {
  int at = 0;
  for (; at + 32 <= n; at += 32) add_columns<32>(lines, at, to);
  for (; at + 8 <= n; at += 8) add_columns<8>(lines, at, to);
  for (; at < n; at++) add_columns<1>(lines, at, to);
}

void add_narrow_plainly(const Columns& lines, int n, float* to) { add_narrow(lines, n, to); }

#ifdef __x86_64__
[[gnu::target("avx2")]] void add_narrow_with_avx2(const Columns& lines, int n, float* to) {
  add_narrow(lines, n, to);
}
#endif

void add_narrow([[maybe_unused]] const Table& table, const Columns& lines, int n, float* to) {
#ifdef __x86_64__
  if (std::string_view(table.name) != "portable") return add_narrow_with_avx2(lines, n, to);
#endif
  add_narrow_plainly(lines, n, to);
}

/* The sizes of a sum: x (outer, count, inner) is added up over its middle axis, `times` over. */
struct Sizes {
  int64_t outer = 1, count = 1, inner = 1, times = 1;
};

struct SumJob : Sizes {
  std::optional<Copy> copy;
  const float* x;
  float* out;
  int workers;

  template <int N>
  void rows(int64_t first) const {
    float totals[N] = {};
    const float* from = x + first * count;
    for (int64_t i = 0; i < count * times; i++)
      for (int row = 0; row < N; row++) totals[row] += from[row * count + i % count];
    std::copy_n(totals, N, out + first);
  }

  void rows() const {
    const int64_t fit = CHUNK / std::max<int64_t>(count, 1);
    const int64_t together = std::min(std::max<int64_t>(fit, ROWS), outer);
    share(static_cast<int>((outer + together - 1) / together), workers, [&](int index, int) {
      const int64_t end = std::min((index + 1) * together, outer);
      int64_t row = index * together;
      for (; row + ROWS <= end; row += ROWS) rows<ROWS>(row);
      for (; row < end; row++) rows<1>(row);
    });
  }

  /* How many columns one thread takes at a time: fewer where others would have none. */
  int64_t columns() const {
    if (outer >= workers || inner * count * times < CHUNK) return COLUMNS;
    const int64_t even = (inner + workers - 1) / workers;
    return std::min<int64_t>((even + LEAST - 1) / LEAST * LEAST, COLUMNS);
  }

  /* Columns [first, first + n) of one outer place. */
  void lines(const Table& table, int64_t place, int64_t first, int n) const {
    const float* from = x + place * count * inner + first;
    float* to = out + place * inner + first;
    if (n <= NARROW) return add_narrow(table, {from, inner, count, times}, n, to);
    std::fill_n(to, n, 0.0F);
    for (int64_t line = 0; line < count * times; line++)
      table.add(to, from + line % count * inner, 1, n, to);
  }

  void operator()() const {
    const Series series;
    if (copy) copy->run();
    if (inner == 1) return rows();
    const int64_t part = columns(), parts = (inner + part - 1) / part;
    share(static_cast<int>(outer * parts), workers, [&](int index, int) {
      const int64_t first = index % parts * part;
      const auto n = static_cast<int>(std::min(part, inner - first));
      lines(table(), index / parts, first, n);
    });
  }
};

class Sum : public Operation {
 public:
  Sum(std::shared_ptr<mx::Primitive> plain, const Sizes& sizes)
      : Operation(plain->stream()), plain_(std::move(plain)), sizes_(sizes) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    const mx::array& x = inputs[0];
    const bool has_gaps = !x.flags().row_contiguous && x.size() > 0;
    if (has_gaps && sizes_.times == 1 && !Here::is_set()) {
      Arrays outputs{out};
      plain_->eval_cpu(inputs, outputs);
      return;
    }
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    SumJob job{sizes_, {}, nullptr, out.data<float>(), threads()};
    job.x = lying(x, encoder, job.copy);
    dispatch(encoder, std::move(job));
  }

  const char* name() const override { return "CowmlxSum"; }

 private:
  std::shared_ptr<mx::Primitive> plain_; /* takes what has gaps, where another thread may wait */
  Sizes sizes_;
};

/* In which order the elements of an array lie. */
struct Arrangement {
  bool has_gaps = false;
  std::vector<int> order{}; /* as that of Turned; empty: row-major */

  bool is_plain() const { return !has_gaps && order.empty(); }
};

/* The axes of a transpose's result, in the order in which its elements lie. */
std::vector<int> transposed(const std::vector<int>& axes, std::vector<int> order) {
  if (order.empty()) {
    order.resize(axes.size());
    std::iota(order.begin(), order.end(), 0);
  }
  for (int& axis : order) axis = static_cast<int>(std::ranges::find(axes, axis) - axes.begin());
  if (std::ranges::is_sorted(order)) order.clear();
  return order;
}

Arrangement arrangement_of(const Recorded& step, const std::vector<Arrangement>& arrangements) {
  if (const auto* turned = dynamic_cast<const Turned*>(step.primitive.get()))
    return {false, turned->order()};
  if (!is_view(*step.primitive)) return {};
  const Arrangement& before = arrangements[step.inputs[0]];
  if (is(*step.primitive, "Transpose") && !before.has_gaps)
    return {false,
            transposed(static_cast<const mx::Transpose&>(*step.primitive).state(), before.order)};
  return {makes_gaps(*step.primitive) || !before.is_plain(), {}};
}

/* Null if a primitive is no such sum. `from`: x, or the array that x repeats along axes that are
 * added up: mlx adds up all of that array, then all of it again, and so on. */
std::shared_ptr<mx::Primitive> sum_of(const std::shared_ptr<mx::Primitive>& primitive,
                                      const mx::array& x, const mx::array& from) {
  const auto* reduce = dynamic_cast<const mx::Reduce*>(primitive.get());
  if (reduce == nullptr || x.dtype() != mx::float32 || x.size() > INT32_MAX) return nullptr;
  const auto [type, axes] = reduce->state();
  if (type != mx::Reduce::Sum || axes.empty()) return nullptr;
  const auto [low, high] = std::ranges::minmax(axes);
  if (low < 0 || high - low + 1 != std::ssize(axes)) return nullptr;
  if (from.ndim() != x.ndim() || (from.size() == 0) != (x.size() == 0)) return nullptr;
  Sizes sizes;
  for (int axis = 0; axis < static_cast<int>(x.ndim()); axis++) {
    (axis < low ? sizes.outer : axis <= high ? sizes.count : sizes.inner) *= from.shape(axis);
    if (from.shape(axis) == x.shape(axis)) continue;
    if (axis < low || axis > high) return nullptr;
    sizes.times *= x.shape(axis);
  }
  if (sizes.times > 1 && (sizes.inner == 1 || sizes.outer > 1)) return nullptr;
  if (sizes.inner == 1 && x.size() > 0 && mx::simd::max_size<float> > 1) return nullptr;
  return std::make_shared<Sum>(primitive, sizes);
}

}  // namespace

void replace_sums(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays) {
  std::vector<Arrangement> arrangements(arrays.size());
  std::unordered_map<uint32_t, uint32_t>
      repeated; /* broadcast arrays, and their row-major source */
  for (Recorded& step : steps) {
    for (const uint32_t place : step.outputs)
      arrangements[place] = arrangement_of(step, arrangements);
    if (step.inputs.size() != 1) continue;
    const uint32_t place = step.inputs[0];
    const auto found = repeated.find(place);
    const uint32_t from = found == repeated.end() ? place : found->second;
    /* mlx adds up a view with gaps in the order of its memory. */
    if (!arrangements[from].is_plain()) continue;
    if (is(*step.primitive, "Broadcast")) repeated[step.outputs[0]] = place;
    if (auto sum = sum_of(step.primitive, arrays[place], arrays[from])) {
      step.primitive = std::move(sum);
      step.inputs = {from};
    }
  }
}

}  // namespace cowmlx
