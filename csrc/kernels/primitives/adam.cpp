#include "operation.h"

namespace cowmlx {
namespace {

constexpr int CHUNK = 1 << 14;  /* numbers that one thread takes at a time */
constexpr int LINE = 16;        /* numbers of a line of the processor's cache */
constexpr int WIDEST = 1 << 16; /* columns of a gradient whose rows are gathered */

enum Input : size_t { PARAMETER, GRADIENT, FIRST, SECOND, FACTORS };

/* One evaluation. */
struct Job {
  AdamStep step;        /* all but what is in `factors` */
  const float* factors; /* rate, root, keep */
  const float* gradient;
  AdamState from;
  AdamResult to;
  int64_t size;
  /* Of a gradient whose rows do not lie behind each other. */
  int64_t rows, columns, row_stride, column_stride;
  float* spare; /* CHUNK numbers, or LINE rows, for each worker; null: it lies as the others do */
  int workers;

  void part(const Table& table, const float* own, int64_t begin, int64_t count) const {
    table.adam(step, own, {from.parameter + begin, from.first + begin, from.second + begin},
               {to.parameter + begin, to.first + begin, to.second + begin},
               static_cast<int>(count));
  }

  /* Rows of the gradient behind each other: each line of the cache is read once. */
  void gather(int64_t row, int64_t count, float* out) const {
    const float* at = gradient + row * row_stride;
    for (int64_t column = 0; column < columns; column++)
      for (int64_t line = 0; line < count; line++)
        out[line * columns + column] = at[line * row_stride + column * column_stride];
  }

  void operator()() {
    const Table& used = table();
    step.rate = factors[0];
    step.root = factors[1];
    step.keep = factors[2];
    if (spare == nullptr) {
      const auto tasks = static_cast<int>((size + CHUNK - 1) / CHUNK);
      share(tasks, workers, [&](int task, int) {
        const int64_t begin = int64_t{task} * CHUNK;
        part(used, gradient + begin, begin, std::min<int64_t>(CHUNK, size - begin));
      });
      return;
    }
    const auto tasks = static_cast<int>((rows + LINE - 1) / LINE);
    share(tasks, workers, [&](int task, int worker) {
      float* own = spare + worker * LINE * columns;
      const int64_t row = int64_t{task} * LINE, count = std::min<int64_t>(LINE, rows - row);
      gather(row, count, own);
      part(used, own, row * columns, count * columns);
    });
  }
};

class Adam : public Operations {
 public:
  Adam(mx::Stream stream, AdamStep step) : Operations(stream), step_(step) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const mx::array& input : inputs) encoder.set_input_array(input);
    for (mx::array& out : outputs) {
      out.set_data(mx::allocator::malloc(out.nbytes()));
      encoder.set_output_array(out);
    }
    const mx::array& gradient = inputs[GRADIENT];
    Job job{};
    job.step = step_;
    job.factors = inputs[FACTORS].data<float>();
    job.gradient = gradient.data<float>();
    job.from = {inputs[PARAMETER].data<float>(), inputs[FIRST].data<float>(),
                inputs[SECOND].data<float>()};
    job.to = {outputs[0].data<float>(), outputs[1].data<float>(), outputs[2].data<float>()};
    job.size = static_cast<int64_t>(gradient.size());
    job.workers = threads();
    if (!gradient.flags().row_contiguous) {
      job.rows = gradient.shape(0);
      job.columns = gradient.shape(1);
      job.row_stride = gradient.strides(0);
      job.column_stride = gradient.strides(1);
      job.spare = temporary<float>(encoder, job.workers * LINE * job.columns);
    }
    dispatch(encoder, job);
  }

  const char* name() const override { return "CowmlxAdam"; }

 private:
  AdamStep step_;
};

void check(const mx::array& array, const std::string& name, const mx::Shape& shape) {
  if (array.shape() != shape || array.dtype() != mx::float32)
    refuse(name + " must be float32, of the parameter's shape");
}

Arrays adam(const mx::array& parameter, const mx::array& gradient, const mx::array& first,
            const mx::array& second, const mx::array& factors, std::pair<double, double> betas,
            double eps) {
  const mx::Stream stream = cpu_stream();
  const mx::Shape& shape = parameter.shape();
  check(parameter, "the parameter", shape);
  check(gradient, "the gradient", shape);
  check(first, "the first moment", shape);
  check(second, "the second moment", shape);
  if (parameter.size() == 0) refuse("the parameter is empty");
  if (factors.shape() != mx::Shape{3} || factors.dtype() != mx::float32)
    refuse("the factors must be float32 (3,)");
  auto number = [](double value) { return static_cast<float>(value); };
  AdamStep step{};
  step.beta1 = number(betas.first);
  step.rest1 = number(1 - betas.first);
  step.beta2 = number(betas.second);
  step.rest2 = number(1 - betas.second);
  step.eps = number(eps);
  auto lying = [&](const mx::array& array) { return mx::contiguous(array, false, stream); };
  const bool gathered = gradient.ndim() == 2 && gradient.shape(1) <= WIDEST;
  Arrays inputs{lying(parameter), gathered ? gradient : lying(gradient), lying(first),
                lying(second), lying(factors)};
  return mx::array::make_arrays({shape, shape, shape}, {mx::float32, mx::float32, mx::float32},
                                std::make_shared<Adam>(stream, step), std::move(inputs));
}

}  // namespace

void bind_adam(nb::module_& module) {
  module.def(
      "adam", adam, "parameter"_a, "gradient"_a, "first"_a, "second"_a, "factors"_a, nb::kw_only(),
      "betas"_a, "eps"_a,
      R"(A step of Adam (arXiv 1412.6980) or AdamW (arXiv 1711.05101), as mlx.optimizers has them.

The bits are those of mlx's operations.

Args:
    parameter: float32, of any shape, not empty.
    gradient: of that shape, as the moments are.
    first: the first moment.
    second: the second moment.
    factors: (3,) float32: the rate of learning; what the root of the second moment is multiplied
        by, 1 without bias correction; what the parameter is multiplied by first, 1 without decay.
    betas: by which the moments decay.
    eps: added to the root.

Returns:
    The parameter and both moments after the step.)");
}

}  // namespace cowmlx
