/* The cross entropy of rows of logits with class ids, and its gradient. */
#include <cmath>

#include "functions.h"
#include "mlx/backend/cpu/simd/simd.h"
#include "operation.h"

namespace cowmlx {
namespace {

constexpr int64_t CHUNK = 1 << 13; /* numbers that one thread takes at a time: some µs */

/* Whether mlx adds up numbers one after the other: it has no vectors here. */
constexpr bool ADDS_IN_ORDER = mx::simd::max_size<float> == 1;

/* A probability whose logarithm has all its digits. */
constexpr float SURE = 1e-30F;

/* How it is computed: in vectors, or as mlx composes it, with the same bits. */
enum class Way { Fast, Exact };

/* Minus the logarithm of the probability of class `id`, of logits x and their softmax. */
float loss_of(const float* x, const float* probabilities, int n, int64_t id) {
  if (probabilities[id] >= SURE) return -std::log(probabilities[id]);
  /* The greatest is at least 1/n. */
  const auto best = std::max_element(x, x + n) - x;
  return x[best] - std::log(probabilities[best]) - x[id];
}

float greatest(const float* x, int n) {
  float most = x[0];
  for (int i = 1; i < n; i++) most = std::isnan(x[i]) || x[i] > most ? x[i] : most;
  return most;
}

struct Job {
  Way way;
  Functions compute; /* of numbers, with mlx's bits */
  Activations logits;
  Integers ids;    /* clamped to the classes */
  const float* by; /* what gradients are multiplied by; null: losses are computed */
  float* spare;    /* two rows for each worker */
  float* out;      /* losses, or gradients (rows, n) */
  int workers;

  /* Exponentials of a row's numbers less the greatest, to `to`, and the numbers less it, to `x`;
   * returns the sum of the former. */
  float exponentials(float* x, float* to) const {
    const int n = logits.columns();
    const float most = greatest(x, n);
    for (int i = 0; i < n; i++) x[i] -= most;
    compute(Code::Exp, x, nullptr, n, to);
    float sum = 0;
    for (int i = 0; i < n; i++) sum += to[i]; /* one after the other, as mlx does */
    return sum;
  }

  void loss(const Table& table, int64_t row, float* own) const {
    const int n = logits.columns();
    float* others = own + n;
    if (way == Way::Fast) {
      const float* x = of(table, row, own);
      table.softmax(x, n, others);
      out[row] = loss_of(x, others, n, ids.clamped(row, n));
      return;
    }
    logits.read(table, row, 1, own);
    const float sum = exponentials(own, others);
    out[row] = std::log(sum) - own[ids.clamped(row, n)];
  }

  void gradient(const Table& table, int64_t row, float* own) const {
    const int n = logits.columns();
    const int64_t id = ids.clamped(row, n);
    const float factor = by[row];
    float* to = out + row * n;
    if (factor == 0) { /* a row that does not count, whatever its logits are */
      std::fill_n(to, n, 0.0F);
      return;
    }
    if (way == Way::Fast) {
      table.softmax(of(table, row, own), n, to);
    } else {
      logits.read(table, row, 1, own);
      const float part = 1 / exponentials(own, to);
      for (int i = 0; i < n; i++) to[i] *= part;
    }
    for (int i = 0; i < n; i++) to[i] = to[i] * factor + 0.0F; /* no zero has a sign */
    to[id] -= factor;
  }

  const float* of(const Table& table, int64_t row, float* own) const {
    if (logits.direct()) return logits.data() + row * logits.columns();
    logits.read(table, row, 1, own);
    return own;
  }

  void operator()() const {
    const Table& used = table();
    const int64_t n = logits.columns(), count = std::max<int64_t>(1, CHUNK / n);
    const auto tasks = static_cast<int>((logits.rows() + count - 1) / count);
    share(tasks, workers, [&](int task, int worker) {
      float* own = spare + 2 * n * worker;
      const int64_t begin = task * count, end = std::min(begin + count, logits.rows());
      for (int64_t row = begin; row < end; row++)
        by == nullptr ? loss(used, row, own) : gradient(used, row, own);
    });
  }
};

/* Inputs: logits (..., N), ids (...) and, for the gradient, what it is multiplied by (...). */
class CrossEntropy : public WithGradient {
 public:
  CrossEntropy(mx::Stream stream, Way way, bool slopes)
      : WithGradient(stream), way_(way), slopes_(slopes) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    const Activations logits(inputs[0]);
    const int workers = threads();
    auto* spare = temporary<float>(encoder, int64_t{workers} * 2 * logits.columns());
    const float* by = slopes_ ? inputs[2].data<float>() : nullptr;
    dispatch(encoder, Job{way_, functions(), logits, Integers(inputs[1]), by, spare,
                          out.data<float>(), workers});
  }

  const char* name() const override {
    return slopes_ ? "CowmlxCrossEntropyGradient" : "CowmlxCrossEntropy";
  }

  Arrays vjp(const Arrays& primals, const Arrays& cotangents, const std::vector<int>& arguments,
             const Arrays& outputs) override {
    if (slopes_ || arguments != std::vector<int>{0})
      return WithGradient::vjp(primals, cotangents, arguments, outputs);
    return {make({primals[0], primals[1], contiguous(cotangents[0])}, way_, true, stream())};
  }

  std::pair<Arrays, std::vector<int>> vmap(const Arrays& inputs,
                                           const std::vector<int>& axes) override {
    const auto mapped = static_cast<size_t>(
        std::ranges::find_if(axes, [](int axis) { return axis >= 0; }) - axes.begin());
    const int rows = inputs[mapped].shape(axes[mapped]);
    Arrays given;
    for (size_t at = 0; at < inputs.size(); at++) {
      const mx::array input = rows_first(inputs[at], axes[at], rows);
      given.push_back(at == 0 ? input : contiguous(input));
    }
    return {{make(std::move(given), way_, slopes_, stream())}, {0}};
  }

  static mx::array make(Arrays inputs, Way way, bool slopes, mx::Stream stream) {
    mx::Shape shape = inputs[slopes ? 0 : 1].shape();
    return mx::array(std::move(shape), mx::float32,
                     std::make_shared<CrossEntropy>(stream, way, slopes), std::move(inputs));
  }

 protected:
  mx::array plainly(const Arrays& inputs) override {
    const mx::Stream s = stream();
    const mx::array& logits = inputs[0];
    const mx::array ids = clamped(inputs[1], logits.shape(-1));
    const mx::array classes = mx::arange(logits.shape(-1), mx::int64, s);
    const mx::array chosen = mx::equal(mx::expand_dims(ids, -1, s), classes, s);
    if (!slopes_) {
      const mx::array scores = mx::where(chosen, logits, mx::array(0.0F), s);
      return mx::subtract(mx::logsumexp(logits, -1, false, s), mx::sum(scores, -1, false, s), s);
    }
    const mx::array part =
        mx::subtract(mx::softmax(logits, -1, true, s), mx::astype(chosen, mx::float32, s), s);
    return mx::multiply(part, mx::expand_dims(inputs[2], -1, s), s);
  }

 private:
  /* ids, of any type, as int64 within 0 … count - 1. */
  mx::array clamped(const mx::array& ids, int count) {
    const mx::Stream s = stream();
    const bool is_signed = mx::issubdtype(ids.dtype(), mx::signedinteger);
    const mx::Dtype wide = is_signed ? mx::int64 : mx::uint64;
    const mx::array least(0, wide), most(count - 1, wide);
    return mx::astype(mx::clip(mx::astype(ids, wide, s), least, most, s), mx::int64, s);
  }

  mx::array contiguous(const mx::array& array) { return mx::contiguous(array, false, stream()); }

  Way way_;
  bool slopes_;
};

mx::array cross_entropy(const mx::array& logits, const mx::array& ids, bool exactly) {
  const mx::Stream stream = cpu_stream();
  if (logits.dtype() != mx::float32 || logits.ndim() < 1) refuse("logits are float32, (..., N)");
  if (!mx::issubdtype(ids.dtype(), mx::integer)) refuse("ids are whole numbers");
  mx::Shape shape = logits.shape();
  shape.pop_back();
  if (logits.shape(-1) == 0 || ids.shape() != shape)
    refuse("ids have the shape of logits without the last axis, which has at least one class");
  const Way way = exactly && ADDS_IN_ORDER ? Way::Exact : Way::Fast;
  return CrossEntropy::make({logits, mx::contiguous(ids, false, stream)}, way, false, stream);
}

}  // namespace

void bind_cross_entropy(nb::module_& module) {
  module.attr("ADDS_IN_ORDER") = ADDS_IN_ORDER;
  module.def("cross_entropy", cross_entropy, "logits"_a, "ids"_a, "exactly"_a = false,
             R"(Minus the logarithm of the probability that softmax(logits) gives to classes.

A row whose loss has a gradient of 0 gives logits the gradient 0, also where these are not finite.

Args:
    logits: (..., N) float32, at least one class.
    ids: (...) integers; ones out of range are clamped.
    exactly: with the bits of logsumexp(x) - x[id] and its gradient in mlx, where x are the logits
        less the greatest, if mlx adds numbers in order (``ADDS_IN_ORDER``). Slower.

Returns:
    (...) float32.)");
}

}  // namespace cowmlx
