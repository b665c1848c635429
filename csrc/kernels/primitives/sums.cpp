/* Sums of float32 over axes that lie beside each other, in recordings: with the bits of mlx's,
 * which adds one number after the other where it has no vectors. */
#include <string_view>

#include "mlx/backend/cpu/simd/simd.h"
#include "recording.h"

namespace cowmlx {
namespace {

constexpr int ROWS = 8;        /* that are added up beside each other: one would wait for itself */
constexpr int COLUMNS = 512;   /* that one thread takes at a time */
constexpr int CHUNK = 1 << 14; /* numbers of rows that one thread takes at a time, about */

constexpr int NARROW = 64; /* columns whose sums stay in registers */

/* Add up N columns side by side, of `count` lines that are `inner` numbers apart. */
template <int N>
[[gnu::always_inline]] inline void add_columns(const float* from, int64_t inner, int64_t count,
                                               float* to) {
  float totals[N] = {};
  for (int64_t line = 0; line < count; line++, from += inner)
    for (int column = 0; column < N; column++) totals[column] += from[column];
  std::copy_n(totals, N, to);
}

[[gnu::always_inline]] inline void add_narrow(const float* from, int64_t inner, int64_t count,
                                              int n, float* to) {
  int at = 0;
  for (; at + 32 <= n; at += 32) add_columns<32>(from + at, inner, count, to + at);
  for (; at + 8 <= n; at += 8) add_columns<8>(from + at, inner, count, to + at);
  for (; at < n; at++) add_columns<1>(from + at, inner, count, to + at);
}

void add_narrow_plainly(const float* from, int64_t inner, int64_t count, int n, float* to) {
  add_narrow(from, inner, count, n, to);
}

#ifdef __x86_64__
[[gnu::target("avx2")]] void add_narrow_with_avx2(const float* from, int64_t inner, int64_t count,
                                                  int n, float* to) {
  add_narrow(from, inner, count, n, to);
}
#endif

void add_narrow([[maybe_unused]] const Table& table, const float* from, int64_t inner,
                int64_t count, int n, float* to) {
#ifdef __x86_64__
  if (std::string_view(table.name) != "portable")
    return add_narrow_with_avx2(from, inner, count, n, to);
#endif
  add_narrow_plainly(from, inner, count, n, to);
}

/* x (outer, count, inner) is added up over its middle axis. */
struct SumJob {
  std::optional<Copy> copy;
  const float* x;
  int64_t outer, count, inner;
  float* out;
  int workers;

  template <int N>
  void rows(int64_t first) const {
    float totals[N] = {};
    const float* from = x + first * count;
    for (int64_t i = 0; i < count; i++)
      for (int row = 0; row < N; row++) totals[row] += from[row * count + i];
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

  /* Columns [first, first + n) of one outer place. */
  void lines(const Table& table, int64_t place, int64_t first, int n) const {
    const float* from = x + place * count * inner + first;
    float* to = out + place * inner + first;
    if (n <= NARROW) return add_narrow(table, from, inner, count, n, to);
    std::fill_n(to, n, 0.0F);
    for (int64_t line = 0; line < count; line++) table.add(to, from + line * inner, 1, n, to);
  }

  void operator()() const {
    const Series series;
    if (copy) copy->run();
    if (inner == 1) return rows();
    const auto parts = static_cast<int>((inner + COLUMNS - 1) / COLUMNS);
    share(static_cast<int>(outer * parts), workers, [&](int index, int) {
      const int64_t first = int64_t{index % parts} * COLUMNS;
      const auto n = static_cast<int>(std::min<int64_t>(COLUMNS, inner - first));
      lines(table(), index / parts, first, n);
    });
  }
};

class Sum : public Operation {
 public:
  Sum(std::shared_ptr<mx::Primitive> plain, int64_t outer, int64_t count, int64_t inner)
      : Operation(plain->stream()),
        plain_(std::move(plain)),
        outer_(outer),
        count_(count),
        inner_(inner) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    const mx::array& x = inputs[0];
    if (!x.flags().row_contiguous && x.size() > 0 && !Here::is_set()) {
      Arrays outputs{out};
      plain_->eval_cpu(inputs, outputs);
      return;
    }
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    SumJob job{{}, nullptr, outer_, count_, inner_, out.data<float>(), threads()};
    job.x = lying(x, encoder, job.copy);
    dispatch(encoder, std::move(job));
  }

  const char* name() const override { return "CowmlxSum"; }

 private:
  std::shared_ptr<mx::Primitive> plain_; /* takes what has gaps, where another thread may wait */
  int64_t outer_, count_, inner_;
};

/* Null if a primitive is no such sum. */
std::shared_ptr<mx::Primitive> sum_of(const std::shared_ptr<mx::Primitive>& primitive,
                                      const mx::array& x) {
  const auto* reduce = dynamic_cast<const mx::Reduce*>(primitive.get());
  if (reduce == nullptr || x.dtype() != mx::float32 || x.size() > INT32_MAX) return nullptr;
  const auto [type, axes] = reduce->state();
  if (type != mx::Reduce::Sum || axes.empty()) return nullptr;
  const auto [low, high] = std::ranges::minmax(axes);
  if (low < 0 || high - low + 1 != std::ssize(axes)) return nullptr;
  int64_t sizes[3] = {1, 1, 1};
  for (int axis = 0; axis < static_cast<int>(x.ndim()); axis++)
    sizes[axis < low ? 0 : axis <= high ? 1 : 2] *= x.shape(axis);
  if (sizes[2] == 1 && x.size() > 0 && mx::simd::max_size<float> > 1) return nullptr;
  return std::make_shared<Sum>(primitive, sizes[0], sizes[1], sizes[2]);
}

}  // namespace

void replace_sums(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays) {
  std::vector<bool> gapped(arrays.size());
  for (Recorded& step : steps) {
    if (is_view(*step.primitive))
      gapped[step.outputs[0]] = makes_gaps(*step.primitive) || gapped[step.inputs[0]];
    /* mlx adds up a view with gaps in the order of its memory. */
    if (step.inputs.size() != 1 || gapped[step.inputs[0]]) continue;
    if (auto sum = sum_of(step.primitive, arrays[step.inputs[0]])) step.primitive = std::move(sum);
  }
}

}  // namespace cowmlx
