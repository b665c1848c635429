/* Sums of float32 over axes that lie beside each other, in recordings. */
#include "recording.h"

namespace cowmlx {
namespace {

constexpr int ROW = 1 << 14;   /* numbers of a row that are added at once */
constexpr int LINES = 128;     /* of a column; a chain of all would round more */
constexpr int COLUMNS = 512;   /* that one thread takes at a time */
constexpr int CHUNK = 1 << 14; /* numbers of rows that one thread takes at a time, about */

/* x (outer, count, inner) is added up over its middle axis. */
struct SumJob {
  std::optional<Copy> copy;
  const float* x;
  int64_t outer, count, inner;
  float* out;
  int workers;

  /* Parts of a row, and then these: what is added never depends on threads. */
  static float row_sum(const Table& table, const float* from, int64_t count) {
    if (count <= ROW) return table.sum(from, static_cast<int>(count));
    float parts[LINES];
    float total = 0;
    while (count > 0) {
      int many = 0;
      for (; many < LINES && count > 0; many++) {
        const auto next = static_cast<int>(std::min<int64_t>(ROW, count));
        parts[many] = table.sum(from, next);
        from += next;
        count -= next;
      }
      total += table.sum(parts, many);
    }
    return total;
  }

  void rows(const Table& table) const {
    const int64_t together = std::clamp<int64_t>(CHUNK / std::max<int64_t>(count, 1), 1, outer);
    share(static_cast<int>((outer + together - 1) / together), workers, [&](int index, int) {
      const int64_t first = index * together, end = std::min(first + together, outer);
      for (int64_t row = first; row < end; row++) out[row] = row_sum(table, x + row * count, count);
    });
  }

  /* Columns [first, first + n) of one outer place. */
  void lines(const Table& table, int64_t place, int64_t first, int n) const {
    float part[COLUMNS];
    const float* from = x + place * count * inner + first;
    float* to = out + place * inner + first;
    std::fill_n(to, n, 0.0F);
    for (int64_t line = 0; line < count;) {
      const int64_t end = std::min(line + LINES, count);
      std::copy_n(from + line * inner, n, part);
      while (++line < end) table.add(part, from + line * inner, 1, n, part);
      table.add(to, part, 1, n, to);
    }
  }

  void operator()() const {
    const Series series;
    const Table& used = table();
    if (copy) copy->run();
    if (inner == 1) return rows(used);
    const auto parts = static_cast<int>((inner + COLUMNS - 1) / COLUMNS);
    share(static_cast<int>(outer * parts), workers, [&](int index, int) {
      const int64_t first = int64_t{index % parts} * COLUMNS;
      lines(used, index / parts, first,
            static_cast<int>(std::min<int64_t>(COLUMNS, inner - first)));
    });
  }
};

class Sum : public Operation {
 public:
  Sum(mx::Stream stream, int64_t outer, int64_t count, int64_t inner)
      : Operation(stream), outer_(outer), count_(count), inner_(inner) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    SumJob job{{}, nullptr, outer_, count_, inner_, out.data<float>(), threads()};
    job.x = lying(inputs[0], encoder, job.copy);
    dispatch(encoder, std::move(job));
  }

  const char* name() const override { return "CowmlxSum"; }

 private:
  int64_t outer_, count_, inner_;
};

}  // namespace

std::shared_ptr<mx::Primitive> sum_of(mx::Primitive& primitive, const mx::array& x) {
  const auto* reduce = dynamic_cast<const mx::Reduce*>(&primitive);
  if (reduce == nullptr || x.dtype() != mx::float32 || x.size() > INT32_MAX) return nullptr;
  const auto [type, axes] = reduce->state();
  if (type != mx::Reduce::Sum || axes.empty()) return nullptr;
  const auto [low, high] = std::ranges::minmax(axes);
  if (low < 0 || high - low + 1 != std::ssize(axes)) return nullptr;
  int64_t sizes[3] = {1, 1, 1};
  for (int axis = 0; axis < static_cast<int>(x.ndim()); axis++)
    sizes[axis < low ? 0 : axis <= high ? 1 : 2] *= x.shape(axis);
  return std::make_shared<Sum>(primitive.stream(), sizes[0], sizes[1], sizes[2]);
}

}  // namespace cowmlx
