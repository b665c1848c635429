/* mlx's products of float32 matrices in recordings, by the same function of a BLAS, so with the
 * same bits, where the caller can compute them. */
#include <dlfcn.h>

#include "recording.h"

namespace cowmlx {
namespace {

/* Multiply-adds of a product that a BLAS computes on one thread (see csrc/blas/cblas.c). */
constexpr int64_t ALONE = 1 << 21;

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

struct Job {
  Operand a, b;
  float* out;
  int64_t count; /* of matrices */
  int m, n, k, workers;

  void product(int64_t index) const {
    gemm()(ROW_MAJOR, a.turned ? TURNED : PLAIN, b.turned ? TURNED : PLAIN, m, n, k, 1,
           a.matrix(index), a.leading, b.matrix(index), b.leading, 0, out + index * m * n, n);
  }

  void operator()() const {
    const Series series;
    for (const Operand* one : {&a, &b})
      if (one->copy) one->copy->run();
    const bool together = int64_t{m} * n * k < ALONE && count < INT32_MAX;
    if (together)
      share(static_cast<int>(count), workers, [&](int index, int) { product(index); });
    else
      for (int64_t index = 0; index < count; index++) product(index);
  }
};

class Matmul : public Operation {
 public:
  explicit Matmul(std::shared_ptr<mx::Primitive> plain)
      : Operation(plain->stream()), plain_(std::move(plain)) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    if (!Here::is_set()) {
      Arrays outputs{out};
      plain_->eval_cpu(inputs, outputs);
      return;
    }
    auto& encoder = prepare(stream(), inputs, out);
    const int m = out.shape(-2), n = out.shape(-1);
    const auto count = static_cast<int64_t>(out.size()) / m / n;
    dispatch(encoder, Job{Operand(inputs[0], encoder), Operand(inputs[1], encoder),
                          out.data<float>(), count, m, n, inputs[0].shape(-1), threads()});
  }

  const char* name() const override { return "CowmlxMatmul"; }

 private:
  std::shared_ptr<mx::Primitive> plain_;
};

}  // namespace

void replace_products(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays) {
  if (gemm() == nullptr) return;
  for (Recorded& step : steps) {
    if (!is(*step.primitive, "Matmul") || step.dtypes[0] != mx::float32) continue;
    const bool has_some =
        std::ranges::all_of(step.inputs, [&](uint32_t place) { return arrays[place].size() > 0; });
    if (has_some) step.primitive = std::make_shared<Matmul>(step.primitive);
  }
}

}  // namespace cowmlx
