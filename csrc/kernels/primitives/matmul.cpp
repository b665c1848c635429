/* mlx's products of float32 matrices in recordings, by the same function of a BLAS, where the
 * caller can compute them. Where they are cut, the last bits may differ from mlx's, with the BLAS's
 * kernel: not with the number of threads, nor with where operands lie. */
#include <dlfcn.h>

#include <unordered_map>

#include "recording.h"
#include "row_batch.h"

namespace cowmlx {
namespace {

/* Multiply-adds of a product that a BLAS computes on one thread (see csrc/blas/cblas.c). */
constexpr int64_t ALONE = 1 << 21;

/* Multiply-adds of a part of a product, and the least side of parts of a sum of products. */
constexpr int64_t PART = 1 << 19;
constexpr int LEAST_SIDE = 64;

/* Numbers of a matrix that each part of a product by rows reads again; multiply-adds of such a
 * product at least. */
constexpr int64_t MOST_SHARED = 1 << 16, LEAST_BY_ROWS = 1 << 18;

enum { ROW_MAJOR = 101, PLAIN = 111, TURNED = 112 }; /* of CBLAS */
using Gemm = void (*)(int order, int turn_a, int turn_b, int m, int n, int k, float alpha,
                      const float* a, int leading_a, const float* b, int leading_b, float beta,
                      float* c, int leading_c);

/* The function that mlx calls, if it is that of csrc/blas, which is fast; else null. */
Gemm gemm() {
  static const auto found = reinterpret_cast<Gemm>(dlsym(RTLD_DEFAULT, "cow_blas_share") == nullptr
                                                       ? nullptr
                                                       : dlsym(RTLD_DEFAULT, "cblas_sgemm"));
  return found;
}

/* Matrices as a BLAS reads them, and copied before if it cannot. */
struct Operand {
  std::optional<Copy> copy;
  const float* data;
  bool turned = false;
  int leading;
  mx::Shape shape; /* of the axes before the matrices */
  mx::Strides strides;

  Operand(const mx::array& array, mx::cpu::CommandEncoder& encoder)
      : data(array.data<float>()),
        leading(array.shape(-1)),
        shape(array.shape()),
        strides(array.strides()) {
    const int64_t row = array.strides(-2), column = array.strides(-1);
    if (row != array.shape(-1) || column != 1) {
      turned = row == 1 && column == array.shape(-2);
      if (turned) leading = array.shape(-2);
    }
    if (!turned && (row != array.shape(-1) || column != 1)) {
      auto* to = temporary<float>(encoder, static_cast<int64_t>(array.size()));
      copy.emplace(Copy{Lines(array), reinterpret_cast<char*>(to)});
      data = to;
      int64_t step = 1;
      for (size_t axis = array.ndim(); axis-- > 0; step *= array.shape(static_cast<int>(axis)))
        strides[axis] = step;
    }
    shape.resize(shape.size() - 2);
  }

  const float* matrix(int64_t index) const {
    const float* found = data;
    for (size_t axis = shape.size(); axis-- > 0; index /= shape[axis])
      found += index % shape[axis] * strides[axis];
    return found;
  }
};

/* A product in parts: ranges of the longer side of its result, which depend on its size alone. */
struct Cut {
  int m, n, k;
  int parts = 1, side;  /* of a part */
  bool by_rows = false; /* or by columns */

  Cut(int rows, int columns, int depth) : m(rows), n(columns), k(depth), side(std::max(m, n)) {
    by_rows = m > n;
    if (is_small()) cut(multiply_adds() / PART);
  }

  int64_t multiply_adds() const { return int64_t{m} * n * k; }
  bool is_small() const { return multiply_adds() < ALONE; }

  /* Ranges of rows that a batch of operations computes; they are those of the product alone, too.
   */
  void cut_rows() {
    by_rows = true;
    side = BATCH_ROWS;
    parts = (m + side - 1) / side;
  }

  void cut(int64_t wanted) {
    const int64_t whole = std::max(m, n), most = std::max<int64_t>(1, wanted);
    side = static_cast<int>(((whole + most - 1) / most + LANES - 1) / LANES * LANES);
    parts = static_cast<int>((whole + side - 1) / side);
  }

  /* Compute a part of out = a b, or of out += a b. */
  void product(const Operand& a, const Operand& b, int64_t index, int part, bool adds,
               float* out) const {
    const int first = part * side, count = std::min(side, (by_rows ? m : n) - first);
    const float *from_a = a.matrix(index), *from_b = b.matrix(index);
    int rows = m, columns = n;
    if (!by_rows) {
      columns = count;
      from_b += b.turned ? int64_t{first} * b.leading : first;
      out += first;
    } else {
      rows = count;
      from_a += a.turned ? first : int64_t{first} * a.leading;
      out += int64_t{first} * n;
    }
    gemm()(ROW_MAJOR, a.turned ? TURNED : PLAIN, b.turned ? TURNED : PLAIN, rows, columns, k, 1,
           from_a, a.leading, from_b, b.leading, adds ? 1 : 0, out, n);
  }
};

struct Job {
  Operand a, b;
  float* out;
  int64_t count; /* of matrices */
  Cut cut;
  int workers;

  /* Of one product in parts of BATCH_ROWS. */
  void rows(int64_t begin, int64_t end, int) const {
    for (int64_t row = begin; row < end; row += BATCH_ROWS)
      cut.product(a, b, 0, static_cast<int>(row / BATCH_ROWS), false, out);
  }

  void operator()() const {
    const Series series;
    for (const Operand* one : {&a, &b})
      if (one->copy) one->copy->run();
    const int64_t size = int64_t{cut.m} * cut.n;
    const auto compute = [&](int64_t index) {
      const int64_t at = index / cut.parts;
      cut.product(a, b, at, static_cast<int>(index % cut.parts), false, out + at * size);
    };
    if (cut.is_small() && count * cut.parts < INT32_MAX)
      share(static_cast<int>(count * cut.parts), workers, [&](int index, int) { compute(index); });
    else
      for (int64_t index = 0; index < count * cut.parts; index++) compute(index);
  }
};

class Matmul : public Operation {
 public:
  explicit Matmul(std::shared_ptr<mx::Primitive> plain)
      : Operation(plain->stream()), plain_(std::move(plain)) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    const int m = out.shape(-2), n = out.shape(-1);
    Cut cut(m, n, inputs[0].shape(-1));
    const bool by_rows = out.ndim() == 2 && cut.is_small() && m >= 2 * BATCH_ROWS &&
                         int64_t{cut.k} * n <= MOST_SHARED && cut.multiply_adds() >= LEAST_BY_ROWS;
    if (by_rows) cut.cut_rows(); /* wherever operands lie, so that results do not depend on that */
    if (!Here::is_set() && cut.parts == 1) {
      Arrays outputs{out};
      plain_->eval_cpu(inputs, outputs);
      return;
    }
    auto& encoder = prepare(stream(), inputs, out);
    const auto count = static_cast<int64_t>(out.size()) / m / n;
    Job job{Operand(inputs[0], encoder),
            Operand(inputs[1], encoder),
            out.data<float>(),
            count,
            cut,
            threads()};
    const bool waits = by_rows && lies_plainly(inputs[0]) && !job.b.copy;
    dispatch_rows(encoder, {{&inputs[0]}, {&inputs[1]}}, {out}, waits ? m : 0, std::move(job));
  }

  const char* name() const override { return "CowmlxMatmul"; }

 private:
  static bool lies_plainly(const mx::array& a) {
    return a.strides(1) == 1 && a.strides(0) == a.shape(1);
  }

  std::shared_ptr<mx::Primitive> plain_;
};

/* ---- sums of products, such as the gradient of a matrix that each step of a loop reads ---- */

struct SumJob {
  std::vector<Operand> operands; /* two of each product */
  float* out;
  Cut cut;
  int workers;

  void operator()() const {
    const Series series;
    for (const Operand& one : operands)
      if (one.copy) one.copy->run();
    share(cut.parts, workers, [&](int part, int) {
      for (size_t at = 0; at < operands.size(); at += 2)
        cut.product(operands[at], operands[at + 1], 0, part, at > 0, out);
    });
  }
};

class SumOfProducts : public Operation {
 public:
  using Operation::Operation;

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    Cut cut(out.shape(0), out.shape(1), inputs[0].shape(1));
    const int64_t work = cut.multiply_adds() * std::ssize(inputs) / 2;
    cut.cut(std::min<int64_t>(work / PART, std::max(cut.m, cut.n) / LEAST_SIDE));
    SumJob job{{}, out.data<float>(), cut, threads()};
    for (const mx::array& input : inputs) job.operands.emplace_back(input, encoder);
    dispatch(encoder, std::move(job));
  }

  const char* name() const override { return "CowmlxSumOfProducts"; }
};

/* Finds chains of additions of products that nothing else reads: ((a + b) + c) + …, or with the
 * operands of an addition the other way round. */
class Chains {
 public:
  Chains(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays,
         const std::vector<uint32_t>& results)
      : steps_(steps), arrays_(arrays) {
    for (const Recorded& step : steps)
      for (const uint32_t place : step.inputs) users_[place]++;
    for (const uint32_t place : results) users_[place] = 2;
  }

  void run() {
    for (Recorded& step : steps_) {
      if (is_product(step)) {
        factors_[step.outputs[0]] = step.inputs;
      } else if (is(*step.primitive, "Add") && step.dtypes[0] == mx::float32) {
        add(step);
      }
    }
  }

 private:
  bool is_product(const Recorded& step) const {
    if (!is(*step.primitive, "Matmul") || step.dtypes[0] != mx::float32) return false;
    const mx::array &a = arrays_[step.inputs[0]], &b = arrays_[step.inputs[1]];
    return a.ndim() == 2 && b.ndim() == 2 && a.size() > 0 && b.size() > 0 &&
           Cut(a.shape(0), b.shape(1), a.shape(1)).is_small();
  }

  void add(Recorded& step) {
    for (const auto& [sum, next] :
         {std::pair(step.inputs[0], step.inputs[1]), std::pair(step.inputs[1], step.inputs[0])}) {
      const auto first = factors_.find(sum), second = factors_.find(next);
      if (first == factors_.end() || second == factors_.end() || sum == next) continue;
      if (second->second.size() != 2 || users_[sum] != 1 || users_[next] != 1) continue;
      if (arrays_[first->second[0]].shape(1) != arrays_[second->second[0]].shape(1)) continue;
      std::vector<uint32_t> factors = first->second;
      factors.insert(factors.end(), second->second.begin(), second->second.end());
      step.primitive = std::make_shared<SumOfProducts>(step.primitive->stream());
      step.inputs = factors;
      factors_[step.outputs[0]] = std::move(factors);
      return;
    }
  }

  std::vector<Recorded>& steps_;
  const std::vector<mx::array>& arrays_;
  std::unordered_map<uint32_t, int> users_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> factors_; /* of a sum of products */
};

}  // namespace

void add_products(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays,
                  const std::vector<uint32_t>& results) {
  if (gemm() != nullptr) Chains(steps, arrays, results).run();
}

void replace_products(std::vector<Recorded>& steps, std::vector<mx::array>& arrays) {
  if (gemm() == nullptr) return;
  pack_matrices(steps, arrays);
  for (Recorded& step : steps) {
    if (!is(*step.primitive, "Matmul") || step.dtypes[0] != mx::float32) continue;
    const bool has_some =
        std::ranges::all_of(step.inputs, [&](uint32_t place) { return arrays[place].size() > 0; });
    if (has_some) step.primitive = std::make_shared<Matmul>(step.primitive);
  }
}

}  // namespace cowmlx
