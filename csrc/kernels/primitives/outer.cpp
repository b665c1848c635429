/* Products of a transposed matrix of many rows with another, x^T y, and sums of such products, in
 * recordings: the gradients of weights. They are outer products of rows, which are read where they
 * lie; a BLAS packs both operands first, which takes as long where the result is small. */
#include <unordered_map>

#include "recording.h"

namespace cowmlx {
namespace {

constexpr int LEAST_ROWS = 1024;          /* of all products */
constexpr size_t MOST_RESULTS = 1 << 16;  /* numbers: with more, a BLAS is as fast */
constexpr int UNITS = 20;                 /* of WINDOWS rows that are read at once */
constexpr int MOST_PARTS = 8;             /* of all rows, which threads share */
constexpr int MOST_COLUMNS = 8 * WINDOWS; /* of x, that a thread takes at a time */

struct Factors {
  std::optional<Copy> copies[2];
  const float *x, *y; /* (rows, m) and (rows, n) */
  int64_t rows;
};

/* Parts depend on the sizes alone, and so do all bits. */
struct OuterJob {
  std::vector<Factors> factors;
  int m, n;    /* n: whole blocks */
  float* sums; /* (parts, m, n), where there are several */
  float* out;
  int workers;

  int64_t numbers() const { return int64_t{m} * n; }
  int64_t rows() const {
    int64_t all = 0;
    for (const Factors& one : factors) all += one.rows;
    return all;
  }
  int parts() const {
    const int64_t chunks = (rows() + UNITS * WINDOWS - 1) / (UNITS * WINDOWS);
    return static_cast<int>(std::min<int64_t>(chunks, MOST_PARTS));
  }
  int groups() const { return (m + MOST_COLUMNS - 1) / MOST_COLUMNS; }
  int columns() const {
    const int even = (m + groups() - 1) / groups();
    return (even + WINDOWS - 1) / WINDOWS * WINDOWS;
  }

  /* Add the outer products of some rows of two factors to columns [from, to) of the sums. */
  void add(const Table& table, const Factors& two, int64_t begin, int64_t end, int from, int to,
           float* own) const {
    const float* places[UNITS * WINDOWS];
    Windows units[UNITS];
    for (int64_t row = begin; row < end; row += UNITS * WINDOWS) {
      const auto count = static_cast<int>(std::min<int64_t>(UNITS * WINDOWS, end - row));
      for (int at = 0; at < count; at++) places[at] = two.x + (row + at) * m;
      int many = 0;
      for (int at = 0; at < count; at += WINDOWS, many++)
        units[many] = {places + at, 1, std::min(WINDOWS, count - at)};
      table.outer_products(units, many, m, from, to, two.y + row * n, n / LANES, own);
    }
  }

  void sum(const Table& table, int part, int group) const {
    const int from = group * columns(), to = std::min(from + columns(), m);
    if (from >= to) return;
    float* own = (parts() > 1 ? sums + part * numbers() : out) + int64_t{from} * n;
    std::fill_n(own, int64_t{to - from} * n, 0.0F);
    const int64_t first = rows() * part / parts(), last = rows() * (part + 1) / parts();
    int64_t before = 0;
    for (const Factors& two : factors) {
      const int64_t begin = std::max<int64_t>(first - before, 0);
      const int64_t end = std::min(last - before, two.rows);
      if (begin < end) add(table, two, begin, end, from, to, own);
      before += two.rows;
    }
  }

  void join(const Table& table, int row) const {
    float* to = out + int64_t{row} * n;
    const float* from = sums + int64_t{row} * n;
    std::copy_n(from, n, to);
    for (int part = 1; part < parts(); part++) table.add(to, from + part * numbers(), 1, n, to);
  }

  void operator()() const {
    const Series series;
    const Table& used = table();
    for (const Factors& one : factors)
      for (const std::optional<Copy>& copy : one.copies)
        if (copy) copy->run();
    share(parts() * groups(), workers,
          [&](int index, int) { sum(used, index / groups(), index % groups()); });
    if (parts() > 1) share(m, workers, [&](int row, int) { join(used, row); });
  }
};

/* Inputs: x and y of each product. */
class OuterProducts : public Operation {
 public:
  using Operation::Operation;

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    OuterJob job{{}, out.shape(0), out.shape(1), nullptr, out.data<float>(), threads()};
    for (size_t at = 0; at < inputs.size(); at += 2) {
      Factors& two = job.factors.emplace_back();
      two.x = lying(inputs[at], encoder, two.copies[0]);
      two.y = lying(inputs[at + 1], encoder, two.copies[1]);
      two.rows = inputs[at].shape(0);
    }
    if (job.parts() > 1) job.sums = temporary<float>(encoder, job.parts() * job.numbers());
    dispatch(encoder, std::move(job));
  }

  const char* name() const override { return "CowmlxOuterProducts"; }
};

bool is_product(const Recorded& step) {
  return (is(*step.primitive, "Matmul") || is(*step.primitive, "CowmlxSumOfProducts")) &&
         step.dtypes[0] == mx::float32 && step.shapes[0].size() == 2;
}

}  // namespace

void replace_outer_products(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays) {
  std::unordered_map<uint32_t, uint32_t> turned; /* transposed matrices, and what they are of */
  for (Recorded& step : steps) {
    if (is(*step.primitive, "Transpose") && step.shapes[0].size() == 2 &&
        static_cast<const mx::Transpose&>(*step.primitive).state() == std::vector<int>{1, 0})
      turned[step.outputs[0]] = step.inputs[0];
    if (!is_product(step) || step.shapes[0][1] % LANES != 0) continue;
    std::vector<uint32_t> inputs = step.inputs;
    int64_t rows = 0;
    bool are_turned = arrays[step.outputs[0]].size() > 0;
    for (size_t at = 0; at < inputs.size() && are_turned; at += 2) {
      rows += arrays[inputs[at + 1]].shape(0);
      const auto found = turned.find(inputs[at]);
      are_turned = found != turned.end();
      if (are_turned) inputs[at] = found->second;
    }
    if (!are_turned || rows < LEAST_ROWS || arrays[step.outputs[0]].size() > MOST_RESULTS) continue;
    step.primitive = std::make_shared<OuterProducts>(step.primitive->stream());
    step.inputs = std::move(inputs);
  }
}

}  // namespace cowmlx
