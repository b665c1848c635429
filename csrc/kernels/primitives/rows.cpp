#include <array>

#include "mlx/fast.h"
#include "row_gradients.h"

namespace cowmlx {
namespace {

constexpr int64_t CHUNK = 1 << 13; /* numbers that one thread takes at a time: some µs */

/* What is done with a row x, with another row of the same shape, and with vectors for all rows. */
enum class Kind { RmsNorm, LayerNorm, Softmax, Gate };

struct Settings {
  Kind kind;
  float eps = 0;
  Activation activation = Activation::Silu;
  bool has_first = false, has_second = false; /* weight or other rows; bias */

  const char* name() const {
    constexpr std::array NAMES = {"CowmlxRmsNorm", "CowmlxLayerNorm", "CowmlxSoftmax",
                                  "CowmlxGate"};
    return NAMES[static_cast<size_t>(kind)];
  }

  void operator()(const Table& table, const float* x, const float* first, const float* second,
                  int n, float* y) const {
    switch (kind) {
      case Kind::RmsNorm:
        return table.rms_norm(x, first, eps, n, y);
      case Kind::LayerNorm:
        return table.layer_norm(x, first, second, eps, n, y);
      case Kind::Softmax:
        return table.softmax(x, n, y);
      case Kind::Gate:
        return table.gate(activation, x, first, n, y);
    }
  }
};

/* One evaluation. */
struct Job {
  Settings settings;
  Activations x;
  std::optional<Activations> other; /* rows beside x's */
  const float *first, *second;      /* vectors for all rows */
  float* spare;                     /* three rows for each worker */
  int workers;
  void* out;
  Scalar type;

  void row(const Table& table, int64_t row, float* own) const {
    const int n = x.columns();
    auto of = [&](const Activations& rows, float* to) -> const float* {
      if (rows.direct()) return rows.data() + row * n;
      rows.read(table, row, 1, to);
      return to;
    };
    const float* from = of(x, own);
    const float* beside = other ? of(*other, own + n) : first;
    const bool direct = type == Scalar::Float32;
    float* to = direct ? static_cast<float*>(out) + row * n : own + 2 * int64_t{n};
    settings(table, from, beside, second, n, to);
    if (!direct) table.store(to, n, static_cast<uint16_t*>(out) + row * n, type);
  }

  void operator()() const {
    const Table& used = table();
    const int64_t count = std::max<int64_t>(1, CHUNK / x.columns());
    const auto tasks = static_cast<int>((x.rows() + count - 1) / count);
    share(tasks, workers, [&](int task, int worker) {
      float* own = spare + int64_t{worker} * 3 * x.columns();
      const int64_t begin = task * count, end = std::min(begin + count, x.rows());
      for (int64_t index = begin; index < end; index++) row(used, index, own);
    });
  }
};

/* What a gate computes, by mlx's operations. */
mx::array plain_activation(Activation activation, const mx::array& x, mx::Stream stream) {
  auto number = [](float value) { return mx::array(value); };
  auto times = [&](const mx::array& a, const mx::array& b) { return mx::multiply(a, b, stream); };
  switch (activation) {
    case Activation::Silu:
      return times(x, mx::sigmoid(x, stream));
    case Activation::Gelu: {
      mx::array erf = mx::erf(times(x, number(0.70710678118654752F)), stream);
      return times(times(x, number(0.5F)), mx::add(erf, number(1), stream));
    }
    case Activation::GeluTanh: {
      mx::array cube = times(times(times(x, x), x), number(0.044715F));
      mx::array inner = times(mx::add(x, cube, stream), number(1.5957691216057308F));
      return times(x, mx::sigmoid(inner, stream));
    }
    case Activation::Relu:
      return mx::maximum(x, number(0), stream);
    case Activation::ReluSquared:
      return mx::square(mx::maximum(x, number(0), stream), stream);
    case Activation::Sigmoid:
      return mx::sigmoid(x, stream);
  }
  return x;
}

class RowOperation : public WithGradient {
 public:
  RowOperation(mx::Stream stream, Settings settings, mx::Dtype type)
      : WithGradient(stream), settings_(settings), type_(type) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    const bool rows = settings_.kind == Kind::Gate;
    size_t next = 1;
    auto vector = [&](bool has) { return has ? inputs[next++].data<float>() : nullptr; };
    const Activations x(inputs[0]);
    std::optional<Activations> other;
    if (rows && settings_.has_first) other.emplace(inputs[next++]);
    const float* first = vector(!rows && settings_.has_first);
    const float* second = vector(settings_.has_second);
    const int workers = threads();
    auto* spare = temporary<float>(encoder, int64_t{workers} * 3 * x.columns());
    dispatch(encoder, Job{settings_, x, std::move(other), first, second, spare, workers,
                          out.data<void>(), scalar_of(out, "out")});
  }

  const char* name() const override { return settings_.name(); }

  Arrays vjp(const Arrays& primals, const Arrays& cotangents, const std::vector<int>& arguments,
             const Arrays& outputs) override {
    const mx::array &x = primals[0], &by = cotangents[0];
    const bool fits = x.dtype() == mx::float32 && type_ == mx::float32 && x.size() > 0;
    const bool is_gelu = settings_.kind == Kind::Gate && settings_.activation == Activation::Gelu;
    if (fits && settings_.kind == Kind::Softmax) { /* it needs the result alone */
      const mx::array part = mx::multiply(by, outputs[0], stream());
      const mx::array total = mx::sum(part, -1, true, stream());
      return {mx::subtract(part, mx::multiply(outputs[0], total, stream()), stream())};
    }
    if (fits && is_gelu && !settings_.has_first) return {gelu_gradient(x, by, stream())};
    if (!fits || settings_.kind == Kind::Gate)
      return WithGradient::vjp(primals, cotangents, arguments, outputs);
    std::optional<mx::array> weight;
    if (settings_.has_first) weight = primals[1];
    const Arrays all =
        norm_gradients(settings_.kind == Kind::LayerNorm, settings_.eps, x, weight, by, stream());
    Arrays wanted;
    for (const int argument : arguments) {
      const bool is_bias = argument > 0 && (argument == 2 || !settings_.has_first);
      wanted.push_back(all[is_bias ? 2 : static_cast<size_t>(argument)]);
    }
    return wanted;
  }

  /* More rows, unless vectors differ between them. */
  std::pair<Arrays, std::vector<int>> vmap(const Arrays& inputs,
                                           const std::vector<int>& axes) override {
    const bool gates = settings_.kind == Kind::Gate;
    const auto own = static_cast<size_t>(gates ? std::ssize(inputs) : 1);
    for (size_t at = own; at < axes.size(); at++)
      if (axes[at] >= 0) return WithGradient::vmap(inputs, axes);
    const auto first = static_cast<size_t>(
        std::ranges::find_if(axes, [](int n) { return n >= 0; }) - axes.begin());
    const int rows = inputs[first].shape(axes[first]);
    Arrays given = inputs;
    for (size_t at = 0; at < own; at++) given[at] = rows_first(inputs[at], axes[at], rows);
    return {{make(std::move(given), type_, settings_, stream())}, {0}};
  }

  static mx::array make(Arrays inputs, mx::Dtype type, const Settings& settings,
                        mx::Stream stream) {
    mx::Shape shape = inputs[0].shape();
    return mx::array(std::move(shape), type, std::make_shared<RowOperation>(stream, settings, type),
                     std::move(inputs));
  }

 protected:
  mx::Dtype type() const override { return type_; }

  mx::array plainly(const Arrays& inputs) override {
    const mx::array& x = inputs[0];
    std::optional<mx::array> first, second;
    if (settings_.has_first) first = inputs[1];
    if (settings_.has_second) second = inputs.back();
    switch (settings_.kind) {
      case Kind::RmsNorm:
        return mx::fast::rms_norm(x, first, settings_.eps, stream());
      case Kind::LayerNorm:
        return mx::fast::layer_norm(x, first, second, settings_.eps, stream());
      case Kind::Softmax:
        return mx::softmax(x, -1, true, stream());
      case Kind::Gate:
        break;
    }
    mx::array y =
        plain_activation(settings_.activation, mx::astype(x, mx::float32, stream()), stream());
    return first ? mx::multiply(y, *first, stream()) : y;
  }

 private:
  Settings settings_;
  mx::Dtype type_;
};

void check_rows(const mx::array& x, const std::string& name) {
  if (x.ndim() < 1 || scalar_of(x, name) == Scalar::UInt8)
    refuse(name + " can be float32, float16 or bfloat16, of at least one axis");
}

/* Put a vector for all rows behind the inputs, as float32. */
bool add_vector(Arrays& inputs, mx::Dtype& type, const std::optional<mx::array>& vector,
                const std::string& name, mx::Stream stream) {
  if (!vector) return false;
  check_rows(*vector, name);
  const int columns = inputs[0].shape(-1);
  if (vector->ndim() != 1 || vector->shape(0) != columns)
    refuse(name + " has one axis, as wide as the last of x: " + std::to_string(columns));
  type = mx::promote_types(type, vector->dtype());
  inputs.push_back(plain(mx::astype(*vector, mx::float32, stream), stream));
  return true;
}

mx::array rms_norm(const mx::array& x, const std::optional<mx::array>& weight, float eps) {
  const mx::Stream stream = cpu_stream();
  check_rows(x, "x");
  Settings settings{.kind = Kind::RmsNorm, .eps = eps};
  Arrays inputs{x};
  mx::Dtype type = x.dtype();
  settings.has_first = add_vector(inputs, type, weight, "weight", stream);
  return RowOperation::make(std::move(inputs), type, settings, stream);
}

mx::array layer_norm(const mx::array& x, const std::optional<mx::array>& weight,
                     const std::optional<mx::array>& bias, float eps) {
  const mx::Stream stream = cpu_stream();
  check_rows(x, "x");
  Settings settings{.kind = Kind::LayerNorm, .eps = eps};
  Arrays inputs{x};
  mx::Dtype type = x.dtype();
  settings.has_first = add_vector(inputs, type, weight, "weight", stream);
  settings.has_second = add_vector(inputs, type, bias, "bias", stream);
  return RowOperation::make(std::move(inputs), type, settings, stream);
}

mx::array softmax(const mx::array& x) {
  const mx::Stream stream = cpu_stream();
  check_rows(x, "x");
  return RowOperation::make({x}, x.dtype(), {.kind = Kind::Softmax}, stream);
}

mx::array gate(const mx::array& x, const std::optional<mx::array>& up,
               const std::string& activation) {
  const mx::Stream stream = cpu_stream();
  check_rows(x, "gate");
  Settings settings{.kind = Kind::Gate, .activation = activation_of(activation)};
  Arrays inputs{x};
  mx::Dtype type = x.dtype();
  if (up) {
    check_rows(*up, "up");
    if (up->shape() != x.shape()) refuse("gate and up have the same shape");
    type = mx::promote_types(type, up->dtype());
    settings.has_first = true;
    inputs.push_back(*up);
  }
  return RowOperation::make(std::move(inputs), type, settings, stream);
}

}  // namespace

Activation activation_of(const std::string& name) {
  if (name == "silu") return Activation::Silu;
  if (name == "gelu") return Activation::Gelu;
  if (name == "gelu_tanh") return Activation::GeluTanh;
  if (name == "relu") return Activation::Relu;
  if (name == "relu2") return Activation::ReluSquared;
  if (name == "sigmoid") return Activation::Sigmoid;
  refuse("activation is \"" + name + "\"; it can be silu, gelu, gelu_tanh, relu, relu2 or sigmoid");
}

void bind_rows(nb::module_& module) {
  module.def("rms_norm", rms_norm, "x"_a, "weight"_a.none(), "eps"_a,
             R"(x / sqrt(mean of x squared + eps) * weight over the last axis.

Args:
    x: (..., N) float32, float16 or bfloat16; sums are float32.
    weight: (N,), or None for ones.
    eps: added to the mean.)");
  module.def("layer_norm", layer_norm, "x"_a, "weight"_a.none(), "bias"_a.none(), "eps"_a,
             R"((x - mean) / sqrt(variance + eps) * weight + bias over the last axis.

Args:
    x: (..., N) float32, float16 or bfloat16; sums are float32.
    weight: (N,), or None for ones.
    bias: (N,), or None for zeros.
    eps: added to the variance.)");
  module.def("softmax", softmax, "x"_a,
             R"(Softmax over the last axis, in float32.

Args:
    x: (..., N) float32, float16 or bfloat16.)");
  module.def("gate", gate, "gate"_a, "up"_a = nb::none(), nb::kw_only(), "activation"_a = "silu",
             R"(activation(gate) * up, as in gated MLPs.

Args:
    gate: (..., N) float32, float16 or bfloat16; computed as float32.
    up: of the same shape, or None for ones.
    activation: silu, gelu, gelu_tanh (its approximation), relu, relu2 (its square) or sigmoid.)");
}

}  // namespace cowmlx
