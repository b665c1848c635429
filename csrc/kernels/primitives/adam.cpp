#include "operation.h"

namespace cowmlx {
namespace {

constexpr int CHUNK = 1 << 14;  /* numbers that one thread takes at a time */
constexpr int LINE = 16;        /* numbers of a line of the processor's cache */
constexpr int WIDEST = 1 << 16; /* columns of a gradient whose rows are gathered */
constexpr size_t MOST = 64;     /* parameters: each output of an operation refers to all others */

enum Input : size_t { GRADIENT, PARAMETER, FIRST, SECOND, INPUTS };
enum Factor : size_t { RATE, ROOT, KEEP, FACTORS };

/* One parameter of an evaluation. */
struct Piece {
  const float* gradient;
  AdamState from;
  AdamResult to;
  int64_t size;
  /* Of a gradient whose rows do not lie behind each other; else no rows. */
  int64_t rows, columns, row_stride, column_stride;

  void part(const Table& table, const AdamStep& step, const float* own, int64_t begin,
            int64_t count) const {
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

  int64_t task() const { return rows == 0 ? CHUNK : LINE; }
  int64_t all() const { return rows == 0 ? size : rows; }
};

/* Whether rows of a gradient that do not lie behind each other are gathered, and not copied. */
bool can_gather(const mx::array& gradient) {
  return gradient.ndim() == 2 && gradient.shape(1) <= WIDEST;
}

/* What a thread takes at a time. */
struct Task {
  size_t piece;
  int64_t begin; /* a number, or a row of those that are gathered */
};

/* One evaluation. */
struct Job {
  AdamStep step; /* all but the factors */
  const float* factors[FACTORS];
  std::vector<Copy> copies; /* to be made first */
  std::vector<Piece> pieces;
  std::vector<Task> tasks;
  float* spare;  /* LINE rows for each worker; null where none are gathered */
  int64_t width; /* of the widest such row */
  int workers;

  void operator()() {
    const Table& used = table();
    step.rate = *factors[RATE];
    step.root = *factors[ROOT];
    step.keep = *factors[KEEP];
    for (const Copy& copy : copies) copy.run();
    share(static_cast<int>(tasks.size()), workers, [&](int index, int worker) {
      const auto& [at, begin] = tasks[static_cast<size_t>(index)];
      const Piece& piece = pieces[at];
      const int64_t count = std::min(piece.task(), piece.all() - begin);
      if (piece.rows == 0) {
        piece.part(used, step, piece.gradient + begin, begin, count);
        return;
      }
      float* own = spare + worker * LINE * width;
      piece.gather(begin, count, own);
      piece.part(used, step, own, begin * piece.columns, count * piece.columns);
    });
  }
};

/* Inputs are those of each parameter, then the factors; outputs are all parameters, all first
 * moments, all second ones. */
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
    Job job{};
    job.step = step_;
    const auto rows_of = [&](const mx::array& array) {
      std::optional<Copy> copy;
      const float* data = lying(array, encoder, copy);
      if (copy) job.copies.push_back(std::move(*copy));
      return data;
    };
    int64_t total = 0;
    const size_t count = (inputs.size() - FACTORS) / INPUTS;
    for (size_t at = 0; at < FACTORS; at++)
      job.factors[at] = inputs[INPUTS * count + at].data<float>();
    for (size_t at = 0; at < count; at++) {
      const mx::array* own = &inputs[INPUTS * at];
      const mx::array& gradient = own[GRADIENT];
      Piece piece{};
      const bool gathered = !gradient.flags().row_contiguous && can_gather(gradient);
      piece.gradient = gathered ? gradient.data<float>() : rows_of(gradient);
      piece.from = {rows_of(own[PARAMETER]), rows_of(own[FIRST]), rows_of(own[SECOND])};
      piece.to = {outputs[at].data<float>(), outputs[count + at].data<float>(),
                  outputs[2 * count + at].data<float>()};
      piece.size = static_cast<int64_t>(gradient.size());
      total += piece.size;
      if (gathered) {
        piece.rows = gradient.shape(0);
        piece.columns = gradient.shape(1);
        piece.row_stride = gradient.strides(0);
        piece.column_stride = gradient.strides(1);
        job.width = std::max(job.width, piece.columns);
      }
      for (int64_t begin = 0; begin < piece.all(); begin += piece.task())
        job.tasks.push_back({at, begin});
      job.pieces.push_back(piece);
    }
    job.workers = total > CHUNK ? threads() : 1;
    if (job.width > 0) job.spare = temporary<float>(encoder, job.workers * LINE * job.width);
    dispatch(encoder, std::move(job));
  }

  const char* name() const override { return "CowmlxAdam"; }

 private:
  AdamStep step_;
};

void check(const mx::array& array, const std::string& name, const mx::Shape& shape) {
  if (array.shape() != shape || array.dtype() != mx::float32)
    refuse(name + " must be float32, of the parameter's shape");
}

std::tuple<Arrays, Arrays, Arrays> adam(const Arrays& parameters, const Arrays& gradients,
                                        const Arrays& firsts, const Arrays& seconds,
                                        const Arrays& factors, std::pair<double, double> betas,
                                        double eps) {
  const mx::Stream stream = cpu_stream();
  const size_t count = parameters.size();
  if (count == 0 || count > MOST)
    refuse("there must be 1 to " + std::to_string(MOST) + " parameters");
  if (gradients.size() != count || firsts.size() != count || seconds.size() != count)
    refuse("parameters, gradients and moments must be as many");
  if (factors.size() != FACTORS) refuse("there must be three factors");
  for (const mx::array& factor : factors)
    if (factor.ndim() != 0 || factor.dtype() != mx::float32)
      refuse("a factor must be float32 of shape ()");
  auto number = [](double value) { return static_cast<float>(value); };
  AdamStep step{};
  step.beta1 = number(betas.first);
  step.rest1 = number(1 - betas.first);
  step.beta2 = number(betas.second);
  step.rest2 = number(1 - betas.second);
  step.eps = number(eps);
  Arrays inputs;
  std::vector<mx::Shape> shapes;
  for (size_t at = 0; at < count; at++) {
    const mx::array& gradient = gradients[at];
    const mx::Shape& shape = parameters[at].shape();
    check(parameters[at], "the parameter", shape);
    check(gradient, "the gradient", shape);
    check(firsts[at], "the first moment", shape);
    check(seconds[at], "the second moment", shape);
    if (gradient.size() == 0) refuse("the parameter is empty");
    inputs.push_back(gradient);
    for (const Arrays* of : {&parameters, &firsts, &seconds}) inputs.push_back((*of)[at]);
    shapes.push_back(shape);
  }
  inputs.insert(inputs.end(), factors.begin(), factors.end());
  std::vector<mx::Shape> all;
  for (int part = 0; part < 3; part++) all.insert(all.end(), shapes.begin(), shapes.end());
  Arrays after =
      mx::array::make_arrays(std::move(all), std::vector<mx::Dtype>(3 * count, mx::float32),
                             std::make_shared<Adam>(stream, step), std::move(inputs));
  const auto first = after.begin() + static_cast<std::ptrdiff_t>(count),
             second = first + static_cast<std::ptrdiff_t>(count);
  return {Arrays(after.begin(), first), Arrays(first, second), Arrays(second, after.end())};
}

}  // namespace

void bind_adam(nb::module_& module) {
  module.attr("ADAM_MOST") = MOST;
  module.def(
      "adam", adam, "parameters"_a, "gradients"_a, "firsts"_a, "seconds"_a, "factors"_a,
      nb::kw_only(), "betas"_a, "eps"_a,
      R"(A step of Adam (arXiv 1412.6980) or AdamW (arXiv 1711.05101), as mlx.optimizers has them.

The bits are those of mlx's operations. They are one operation.

Args:
    parameters: 1 to ADAM_MOST, float32, of any shapes, not empty.
    gradients: of these shapes, as the moments are.
    firsts: the first moments.
    seconds: the second moments.
    factors: three float32 of shape (): the rate of learning; what the root of the second moment is
        multiplied by, 1 without bias correction; what the parameter is multiplied by first, 1
        without decay.
    betas: by which the moments decay.
    eps: added to the root.

Returns:
    The parameters, the first and the second moments after the step.)");
}

}  // namespace cowmlx
