#include "row_gradients.h"

#include "mlx/fast.h"

namespace cowmlx {
namespace {

constexpr int64_t CHUNK = 1 << 12; /* numbers that one thread takes at a time: some µs */
constexpr int64_t MOST_PARTS = 32;

/* An evaluation of gradients of a norm. Rows are cut into parts, whatever number of threads there
 * is; each adds up its own rows. */
struct NormJob {
  std::optional<Copy> copies[2];
  bool centred;
  float eps;
  const float *x, *weight, *by;
  int64_t rows, part; /* part: rows of one */
  int n, workers;
  float* sums; /* of parts: of weight, then of bias */
  float *of_x, *of_weight, *of_bias;

  void operator()() const {
    const Series series;
    for (const auto& copy : copies)
      if (copy) copy->run();
    const Table& used = table();
    const auto parts = static_cast<int>((rows + part - 1) / part);
    share(parts, workers, [&](int index, int) {
      float *along = sums + 2 * int64_t{n} * index, *total = along + n;
      std::fill_n(along, 2 * n, 0.0F);
      const int64_t end = std::min((index + 1) * part, rows);
      for (int64_t row = index * part; row < end; row++)
        used.norm_gradient(centred, x + row * n, weight, by + row * n, eps, n, of_x + row * n,
                           along, total);
    });
    std::copy_n(sums, n, of_weight);
    std::copy_n(sums + n, n, of_bias);
    for (int index = 1; index < parts; index++) {
      const float* along = sums + 2 * int64_t{n} * index;
      used.add(of_weight, along, 1, n, of_weight);
      used.add(of_bias, along + n, 1, n, of_bias);
    }
  }
};

/* Inputs: x, by and, perhaps, weight. Outputs: gradients of x, weight and bias. */
class NormGradients : public Gradients {
 public:
  NormGradients(mx::Stream stream, bool centred, float eps)
      : Gradients(stream), centred_(centred), eps_(eps) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const mx::array& input : inputs) encoder.set_input_array(input);
    for (mx::array& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
      encoder.set_output_array(output);
    }
    NormJob job{};
    job.centred = centred_;
    job.eps = eps_;
    job.n = inputs[0].shape(-1);
    job.rows = static_cast<int64_t>(inputs[0].size()) / job.n;
    job.part = std::max({CHUNK / job.n, (job.rows + MOST_PARTS - 1) / MOST_PARTS, int64_t{1}});
    job.x = lying(inputs[0], encoder, job.copies[0]);
    job.by = lying(inputs[1], encoder, job.copies[1]);
    job.weight = inputs.size() > 2 ? inputs[2].data<float>() : nullptr;
    job.sums = temporary<float>(encoder, (job.rows + job.part - 1) / job.part * 2 * job.n);
    job.of_x = outputs[0].data<float>();
    job.of_weight = outputs[1].data<float>();
    job.of_bias = outputs[2].data<float>();
    job.workers = threads();
    dispatch(encoder, std::move(job));
  }

  const char* name() const override { return "CowmlxNormGradients"; }

 protected:
  size_t count() const override { return 3; }

  Arrays plainly(const Arrays& inputs) override {
    const mx::Stream s = stream();
    const mx::Shape vector{inputs[0].shape(-1)};
    const mx::array weight = inputs.size() > 2 ? inputs[2] : mx::ones(vector, mx::float32, s);
    auto norm = [&](const Arrays& given) -> Arrays {
      if (centred_) return {mx::fast::layer_norm(given[0], given[1], given[2], eps_, s)};
      const mx::array normed = mx::fast::rms_norm(given[0], given[1], eps_, s);
      return {mx::add(normed, given[2], s)};
    };
    const mx::array bias = mx::zeros(vector, mx::float32, s);
    return mx::vjp(norm, {inputs[0], weight, bias}, {inputs[1]}).second;
  }

 private:
  bool centred_;
  float eps_;
};

struct GeluJob {
  std::optional<Copy> copies[2];
  const float *x, *by;
  float* out;
  int64_t count;
  int workers;

  void operator()() const {
    const Series series;
    for (const auto& copy : copies)
      if (copy) copy->run();
    const Table& used = table();
    share(static_cast<int>((count + CHUNK - 1) / CHUNK), workers, [&](int index, int) {
      const int64_t begin = index * CHUNK;
      const auto n = static_cast<int>(std::min(CHUNK, count - begin));
      used.gelu_gradient(x + begin, by + begin, n, out + begin);
    });
  }
};

/* Inputs: x and what its slopes are multiplied by. */
class GeluGradient : public WithGradient {
 public:
  using WithGradient::WithGradient;

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    GeluJob job{};
    job.x = lying(inputs[0], encoder, job.copies[0]);
    job.by = lying(inputs[1], encoder, job.copies[1]);
    job.out = out.data<float>();
    job.count = static_cast<int64_t>(out.size());
    job.workers = threads();
    dispatch(encoder, std::move(job));
  }

  const char* name() const override { return "CowmlxGeluGradient"; }

  std::pair<Arrays, std::vector<int>> vmap(const Arrays& inputs,
                                           const std::vector<int>& axes) override {
    const int rows = rows_of(inputs, axes);
    return {{gelu_gradient(rows_first(inputs[0], axes[0], rows),
                           rows_first(inputs[1], axes[1], rows), stream())},
            {0}};
  }

 protected:
  mx::array plainly(const Arrays& inputs) override {
    const mx::Stream s = stream();
    const mx::array& x = inputs[0];
    const auto times = [&](const mx::array& a, float b) {
      return mx::multiply(a, mx::array(b), s);
    };
    const mx::array erf = mx::erf(times(x, 0.70710678118654752F), s);
    const mx::array normal = times(mx::add(erf, mx::array(1.0F), s), 0.5F);
    const mx::array power = mx::exp(times(mx::square(x, s), -0.5F), s);
    const mx::array slope = times(mx::multiply(x, power, s), 0.3989422804014327F);
    return mx::multiply(inputs[1], mx::add(normal, slope, s), s);
  }
};

}  // namespace

Arrays norm_gradients(bool centred, float eps, const mx::array& x,
                      const std::optional<mx::array>& weight, const mx::array& by,
                      mx::Stream stream) {
  Arrays inputs{x, by};
  if (weight) inputs.push_back(*weight);
  const mx::Shape vector{x.shape(-1)};
  return mx::array::make_arrays({x.shape(), vector, vector},
                                {mx::float32, mx::float32, mx::float32},
                                std::make_shared<NormGradients>(stream, centred, eps), inputs);
}

mx::array gelu_gradient(const mx::array& x, const mx::array& by, mx::Stream stream) {
  return mx::array(x.shape(), mx::float32, std::make_shared<GeluGradient>(stream), {x, by});
}

}  // namespace cowmlx
