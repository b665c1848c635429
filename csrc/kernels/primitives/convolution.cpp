/* Convolutions as an operation of mlx, with a bias and a relu where networks have them. */
#include "convolution_gradients.h"
#include "operation.h"

namespace cowmlx {
namespace {

/* Give a job the scratch that it takes. */
template <class Job>
void take_scratch(Job& job, mx::cpu::CommandEncoder& encoder) {
  Arena counted(nullptr);
  job.take(counted);
  Arena arena(temporary<char>(encoder, static_cast<int64_t>(counted.used())));
  job.take(arena);
}

class Convolution : public WithGradient, public Extensible {
 public:
  Convolution(mx::Stream stream, const ConvolutionShape& shape, size_t axes, bool biased,
              bool positive)
      : WithGradient(stream), shape_(shape), axes_(axes), biased_(biased), positive_(positive) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    ConvolutionJob job(shape_);
    job.workers = threads();
    job.positive = positive_;
    job.x = lying(inputs[0], encoder, job.copies[0]);
    add_weight(job, inputs[1], encoder);
    job.bias = biased_ ? lying(inputs[2], encoder, job.copies[2]) : nullptr;
    take_scratch(job, encoder);
    job.y = out.data<float>();
    dispatch(encoder, std::move(job));
  }

  const char* name() const override { return "CowmlxConvolution"; }

  std::shared_ptr<mx::Primitive> with_bias() override {
    if (biased_ || positive_) return nullptr;
    return std::make_shared<Convolution>(stream(), shape_, axes_, true, false);
  }
  std::shared_ptr<mx::Primitive> with_relu() override {
    if (positive_) return nullptr;
    return std::make_shared<Convolution>(stream(), shape_, axes_, biased_, true);
  }

  Arrays vjp(const Arrays& primals, const Arrays& cotangents, const std::vector<int>& arguments,
             const Arrays& outputs) override;

  /* Rows of images are more images. */
  std::pair<Arrays, std::vector<int>> vmap(const Arrays& inputs,
                                           const std::vector<int>& axes) override {
    if (axes[0] < 0 && axes[1] >= 0 && shape_.groups > 1) { /* mlx is wrong without rows of x */
      const int rows = inputs[1].shape(axes[1]);
      Arrays given = inputs;
      for (size_t at = 0; at < given.size(); at++)
        given[at] = rows_first(given[at], axes[at], rows);
      return WithGradient::vmap(given, std::vector<int>(given.size(), 0));
    }
    if (axes[0] < 0 || axes[1] >= 0 || biased_ || positive_)
      return WithGradient::vmap(inputs, axes);
    const int rows = inputs[0].shape(axes[0]);
    const mx::array x = mx::flatten(rows_first(inputs[0], axes[0], rows), 0, 1, stream());
    const mx::array made = another(x.shape(0), shape_.channels, shape_.outputs, shape_.flip,
                                   {x, inputs[1]}, [](ConvolutionShape&, size_t) {});
    return {{mx::unflatten(made, 0, {rows, shape_.images}, stream())}, {0}};
  }

 protected:
  /* mlx's gradients are wrong where ends of an axis are padded differently, where windows do not
   * reach its end, and where the input is dilated, so it gets none of these. */
  mx::array plainly(const Arrays& inputs) override {
    mx::array x = inputs[0];
    std::vector<int> padding;
    for (size_t i = 0; i < axes_; i++) {
      const size_t at = AXES - axes_ + i;
      const auto axis = static_cast<int>(1 + i);
      x = spread_out(x, axis, shape_.spread[at]);
      const int reach = (shape_.kernel[at] - 1) * shape_.dilation[at];
      const int low = shape_.before[at];
      int high = shape_.after[at];
      high -= (x.shape(axis) + low + high - reach - 1) % shape_.stride[at];
      const bool is_known = low == high && low >= 0 && low <= reach;
      if (!is_known) x = padded(x, axis, low, high);
      padding.push_back(is_known ? low : 0);
    }
    auto numbers = [this](const Three& all) {
      return std::vector<int>(all.end() - static_cast<std::ptrdiff_t>(axes_), all.end());
    };
    mx::array y = mx::conv_general(x, inputs[1], numbers(shape_.stride), padding, padding,
                                   numbers(shape_.dilation), std::vector<int>(axes_, 1),
                                   shape_.groups, shape_.flip, stream());
    if (biased_) y = mx::add(y, inputs[2], stream());
    return positive_ ? mx::maximum(y, mx::array(0.0F), stream()) : y;
  }

 private:
  class Gradient;

  /* Whether the gradient with respect to an argument (0: input, 1: weight) has a separate
   * operation. For the input a convolution is as fast, unless it would read zeros between numbers
   * or fill few lanes. */
  bool has_operation(int argument) const {
    const bool is_strided = *std::ranges::max_element(shape_.stride) > 1;
    return *std::ranges::max_element(shape_.spread) == 1 &&
           (argument == 1 || (shape_.images > 1 && (is_strided || shape_.channels < LANES)));
  }

  /* Whether the gradient is computed as a convolution, otherwise by mlx. */
  bool is_convolution(int argument) const {
    const int64_t columns =
        argument == 0 ? int64_t{shape_.taps()} * shape_.outputs : int64_t{shape_.results()};
    return columns <= MOST_COLUMNS;
  }

  mx::array as_convolution(int argument, const mx::array& other, const mx::array& by) {
    return argument == 0 ? of_input(other, by) : of_weight(other, by);
  }

  /* Its sizes with other numbers of images and channels, and each axis as `change` makes it. */
  template <class Change>
  mx::array another(int images, int channels, int outputs, bool flip, Arrays inputs,
                    Change change) {
    ConvolutionShape shape = shape_;
    shape.images = images;
    shape.channels = channels;
    shape.outputs = outputs;
    shape.flip = flip;
    mx::Shape made{images};
    for (size_t at = 0; at < AXES; at++) {
      change(shape, at);
      /* As many zeros behind as the last window needs. */
      shape.after[at] = (shape.out[at] - 1) * shape.stride[at] +
                        (shape.kernel[at] - 1) * shape.dilation[at] -
                        (shape.in[at] - 1) * shape.spread[at] - shape.before[at];
      if (at >= AXES - axes_) made.push_back(shape.out[at]);
    }
    made.push_back(outputs);
    return mx::array(std::move(made), mx::float32,
                     std::make_shared<Convolution>(stream(), shape, axes_, false, false),
                     std::move(inputs));
  }

  /* The first and the last axis change places. */
  mx::array turned(const mx::array& array) {
    return mx::swapaxes(array, 0, static_cast<int>(axes_ + 1), stream());
  }

  /* Each element gets what the windows that it was in give: of the results with zeros between them,
   * where there was a stride, by the weight backwards. */
  mx::array of_input(const mx::array& weight, const mx::array& by) {
    const auto change = [](ConvolutionShape& shape, size_t at) {
      std::swap(shape.in[at], shape.out[at]);
      std::swap(shape.stride[at], shape.spread[at]);
      shape.before[at] = (shape.kernel[at] - 1) * shape.dilation[at] - shape.before[at];
    };
    return another(shape_.images, shape_.outputs, shape_.channels, !shape_.flip,
                   {by, turned(weight)}, change);
  }

  /* Each number of a window gets the sum over results of what it met: a window as large as the
   * results, over images as channels. */
  mx::array of_weight(const mx::array& x, const mx::array& by) {
    const auto change = [](ConvolutionShape& shape, size_t at) {
      std::swap(shape.kernel[at], shape.out[at]);
      std::swap(shape.stride[at], shape.dilation[at]);
    };
    mx::array made = turned(another(shape_.channels, shape_.images, shape_.outputs, false,
                                    {turned(x), turned(by)}, change));
    if (!shape_.flip) return made;
    mx::Shape start(made.ndim(), 0), stop = made.shape(), step(made.ndim(), 1);
    for (size_t axis = 1; axis <= axes_; axis++) {
      start[axis] = stop[axis] - 1;
      stop[axis] = -stop[axis] - 1;
      step[axis] = -1;
    }
    return mx::slice(made, start, stop, step, stream());
  }

  /* Zeros at both ends of an axis; below 0 numbers are cut off, of the other end's zeros, too. */
  mx::array padded(const mx::array& x, int axis, int low, int high) {
    const int length = x.shape(axis);
    if (low < -length) {
      high += low + length;
      low = -length;
    }
    if (high < -length) {
      low += high + length;
      high = -length;
    }
    mx::Shape start(x.ndim(), 0), stop = x.shape();
    start[axis] = std::max(-low, 0);
    stop[axis] -= std::max(-high, 0);
    const mx::array cut = low < 0 || high < 0 ? mx::slice(x, start, stop, stream()) : x;
    return mx::pad(cut, std::vector<int>{axis}, mx::Shape{std::max(low, 0)},
                   mx::Shape{std::max(high, 0)}, mx::array(0.0F), "constant", stream());
  }

  /* Zeros between the numbers of an axis. */
  mx::array spread_out(const mx::array& x, int axis, int spread) {
    if (spread == 1) return x;
    const mx::array apart = mx::expand_dims(x, axis + 1, stream());
    const mx::array wide = mx::pad(apart, std::vector<int>{axis + 1}, mx::Shape{0},
                                   mx::Shape{spread - 1}, mx::array(0.0F), "constant", stream());
    const mx::array flat = mx::flatten(wide, axis, axis + 1, stream());
    mx::Shape stop = flat.shape();
    stop[axis] -= spread - 1;
    return mx::slice(flat, mx::Shape(stop.size(), 0), stop, stream());
  }

  void add_weight(ConvolutionJob& job, const mx::array& weight, mx::cpu::CommandEncoder& encoder) {
    const int64_t numbers = shape_.matrices() * shape_.matrix_numbers();
    job.held = keeper_.find(weight, shape_.matrices(), numbers, encoder);
    if (job.held.packs) job.weight = lying(weight, encoder, job.copies[1]);
  }

  ConvolutionShape shape_;
  size_t axes_;
  bool biased_, positive_;
  Keeper keeper_;
};

/* The gradient with respect to one argument, made of the other one and the result's gradient. */
class Convolution::Gradient : public WithGradient {
 public:
  Gradient(mx::Stream stream, const ConvolutionShape& shape, size_t axes, int argument)
      : WithGradient(stream), shape_(shape), axes_(axes), argument_(argument) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (argument_ == 0) {
      InputGradientJob job{};
      start(job, inputs, out, job.weight, encoder);
    } else {
      WeightGradientJob job{};
      start(job, inputs, out, job.x, encoder);
    }
  }

  const char* name() const override { return "CowmlxConvolutionGradient"; }

 protected:
  /* As a convolution, or as mlx's gradient where its window would be too large. */
  mx::array plainly(const Arrays& inputs) override {
    Convolution own(stream(), shape_, axes_, false, false);
    if (own.is_convolution(argument_)) return own.as_convolution(argument_, inputs[0], inputs[1]);
    const Three& lengths = argument_ == 0 ? shape_.in : shape_.kernel;
    mx::Shape sides{argument_ == 0 ? shape_.images : shape_.outputs};
    for (size_t at = AXES - axes_; at < AXES; at++) sides.push_back(lengths[at]);
    sides.push_back(shape_.channels);
    const auto result = [&](const Arrays& given) -> Arrays {
      return {
          own.plainly(argument_ == 0 ? Arrays{given[0], inputs[0]} : Arrays{inputs[0], given[0]})};
    };
    return mx::vjp(result, {mx::zeros(sides, mx::float32, stream())}, {inputs[1]}).second[0];
  }

 private:
  template <class Job>
  void start(Job& job, const Arrays& inputs, mx::array& out, const float*& other,
             mx::cpu::CommandEncoder& encoder) const {
    job.shape = shape_;
    job.workers = threads();
    other = lying(inputs[0], encoder, job.copies[0]);
    job.by = lying(inputs[1], encoder, job.copies[1]);
    job.out = out.data<float>();
    take_scratch(job, encoder);
    dispatch(encoder, std::move(job));
  }

  ConvolutionShape shape_;
  size_t axes_;
  int argument_;
};

Arrays Convolution::vjp(const Arrays& primals, const Arrays& cotangents,
                        const std::vector<int>& arguments, const Arrays& outputs) {
  if (shape_.groups > 1 || biased_ || positive_ || outputs[0].size() == 0)
    return WithGradient::vjp(primals, cotangents, arguments, outputs);
  Arrays found;
  for (const int argument : arguments) {
    const auto at = static_cast<size_t>(argument);
    const mx::array& other = primals[1 - at];
    if (has_operation(argument)) {
      found.emplace_back(primals[at].shape(), mx::float32,
                         std::make_shared<Gradient>(stream(), shape_, axes_, argument),
                         Arrays{other, cotangents[0]});
    } else if (is_convolution(argument)) {
      found.push_back(as_convolution(argument, other, cotangents[0]));
    } else {
      found.push_back(WithGradient::vjp(primals, cotangents, {argument}, outputs)[0]);
    }
  }
  return found;
}

Three three(const std::vector<int>& given, size_t axes, const std::string& name, int least) {
  if (given.size() != axes)
    refuse(name + " has " + std::to_string(given.size()) + " numbers; it has one for each of " +
           std::to_string(axes) + " axes");
  Three all{};
  all.fill(least);
  for (size_t axis = 0; axis < axes; axis++) {
    if (given[axis] < least)
      refuse(name + " has " + std::to_string(given[axis]) + "; it can be " + std::to_string(least) +
             " or more");
    all[AXES - axes + axis] = given[axis];
  }
  return all;
}

void check_inputs(const mx::array& x, const mx::array& weight, const std::optional<mx::array>& bias,
                  int groups) {
  if (x.dtype() != mx::float32 || weight.dtype() != mx::float32) refuse("x and weight are float32");
  if (x.ndim() < 3 || x.ndim() > AXES + 2 || weight.ndim() != x.ndim())
    refuse("x is (N, 1 to 3 axes, C) and weight (O, as many axes, C / groups)");
  if (weight.size() == 0) refuse("weight has no elements");
  if (groups < 1 || x.shape(-1) != weight.shape(-1) * groups || weight.shape(0) % groups != 0)
    refuse("x of " + shape_text(x) + " and weight of " + shape_text(weight) + " do not fit " +
           std::to_string(groups) + " groups");
  if (bias && (bias->dtype() != mx::float32 || bias->shape() != mx::Shape{weight.shape(0)}))
    refuse("bias is float32, a number for each output");
}

mx::array convolution(const mx::array& x, const mx::array& weight,
                      const std::optional<mx::array>& bias, const std::vector<int>& stride,
                      const std::vector<std::pair<int, int>>& padding,
                      const std::vector<int>& dilation, const std::vector<int>& spread, int groups,
                      bool flip) {
  check_inputs(x, weight, bias, groups);
  const size_t axes = x.ndim() - 2;
  ConvolutionShape shape{.images = x.shape(0),
                         .channels = x.shape(-1),
                         .outputs = weight.shape(0),
                         .groups = groups,
                         .in = {1, 1, 1},
                         .out = {1, 1, 1},
                         .kernel = {1, 1, 1},
                         .stride = three(stride, axes, "stride", 1),
                         .before = {0, 0, 0},
                         .after = {0, 0, 0},
                         .dilation = three(dilation, axes, "kernel_dilation", 1),
                         .spread = three(spread, axes, "input_dilation", 1),
                         .flip = flip};
  if (padding.size() != axes) refuse("padding has a pair of numbers for each axis");
  int64_t columns = weight.shape(-1);
  mx::Shape made = x.shape();
  for (size_t axis = 0; axis < axes; axis++) {
    const size_t at = AXES - axes + axis;
    shape.in[at] = x.shape(static_cast<int>(1 + axis));
    shape.kernel[at] = weight.shape(static_cast<int>(1 + axis));
    shape.before[at] = padding[axis].first;
    shape.after[at] = padding[axis].second;
    if (std::max(std::abs(int64_t{shape.before[at]}), std::abs(int64_t{shape.after[at]})) > 1 << 30)
      refuse("padding is beyond 2^30");
    columns *= shape.kernel[at];
    const int64_t length = int64_t{shape.in[at] - 1} * shape.spread[at] + 1;
    const int64_t reach = int64_t{shape.kernel[at] - 1} * shape.dilation[at] + 1;
    const int64_t wide = length + shape.before[at] + shape.after[at], room = wide - reach;
    if (shape.spread[at] > 1 && (shape.before[at] != shape.after[at] || shape.before[at] < 0))
      refuse("where the input is dilated, both ends have the same padding, 0 or more");
    if (shape.in[at] < 1 || room < 0)
      refuse("an axis of " + std::to_string(shape.in[at]) + " has no room for the weight's");
    if (std::max({wide, reach, length}) > INT32_MAX)
      refuse("an axis is longer than 2^31 with its padding and dilation");
    shape.out[at] = static_cast<int>(room / shape.stride[at]) + 1;
    made[1 + axis] = shape.out[at];
  }
  if (columns > MOST_COLUMNS)
    refuse("a window has " + std::to_string(columns) + " numbers; it can have " +
           std::to_string(MOST_COLUMNS) + " at most");
  made.back() = shape.outputs;
  Arrays inputs{x, weight};
  if (bias) inputs.push_back(*bias);
  return mx::array(
      std::move(made), mx::float32,
      std::make_shared<Convolution>(cpu_stream(), shape, axes, bias.has_value(), false),
      std::move(inputs));
}

}  // namespace

void bind_convolution(nb::module_& module) {
  module.attr("MOST_COLUMNS") = MOST_COLUMNS;
  module.def("convolution", convolution, "x"_a, "weight"_a, "bias"_a = nb::none(), nb::kw_only(),
             "stride"_a, "padding"_a, "kernel_dilation"_a, "input_dilation"_a, "groups"_a = 1,
             "flip"_a = false,
             R"(A convolution, as mlx.core.conv_general computes it, plus bias.

Args:
    x: (N, 1 to 3 axes, C) float32.
    weight: (O, as many axes, C / groups) float32, at most MOST_COLUMNS numbers for each output.
    bias: (O,) float32, or None for zeros.
    stride: from one window to the next, a number for each axis, as the two dilations.
    padding: zeros before and behind, a pair for each axis; below 0 numbers are cut off.
    kernel_dilation: between the elements of a window.
    input_dilation: between the elements of x.
    groups: of channels.
    flip: whether windows are reversed.

Raises:
    ValueError: shapes that do not fit.)");
}

}  // namespace cowmlx
