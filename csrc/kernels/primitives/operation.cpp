#include "operation.h"

namespace cowmlx {

Arrays WithGradient::vjp(const Arrays& primals, const Arrays& cotangents,
                         const std::vector<int>& arguments, const Arrays& outputs) {
  Arrays wanted;
  for (int argument : arguments) wanted.push_back(primals[static_cast<size_t>(argument)]);
  auto result = [&](const Arrays& given) -> Arrays {
    Arrays inputs = primals; /* the others are constants */
    for (size_t place = 0; place < arguments.size(); place++)
      inputs[static_cast<size_t>(arguments[place])] = given[place];
    return {mx::astype(plainly(inputs), outputs[0].dtype(), stream())};
  };
  return mx::vjp(result, wanted, cotangents).second;
}

std::pair<Arrays, std::vector<int>> WithGradient::vmap(const Arrays& inputs,
                                                       const std::vector<int>& axes) {
  auto result = [this](const Arrays& given) -> Arrays {
    Arrays wide; /* as kernels compute: rounded once, at the end */
    for (const mx::array& one : given)
      wide.push_back(
          mx::issubdtype(one.dtype(), mx::floating) ? mx::astype(one, mx::float32, stream()) : one);
    return {mx::astype(plainly(wide), type(), stream())};
  };
  return {mx::vmap(result, axes, {0})(inputs), {0}};
}

Arrays Gradients::vjp(const Arrays& primals, const Arrays& cotangents,
                      const std::vector<int>& arguments, const Arrays&) {
  Arrays wanted;
  for (int argument : arguments) wanted.push_back(primals[static_cast<size_t>(argument)]);
  auto result = [&](const Arrays& given) {
    Arrays inputs = primals; /* the others are constants */
    for (size_t place = 0; place < arguments.size(); place++)
      inputs[static_cast<size_t>(arguments[place])] = given[place];
    return plainly(inputs);
  };
  return mx::vjp(result, wanted, cotangents).second;
}

std::pair<Arrays, std::vector<int>> Gradients::vmap(const Arrays& inputs,
                                                    const std::vector<int>& axes) {
  const std::vector<int> first(count(), 0);
  auto result = [this](const Arrays& given) { return plainly(given); };
  return {mx::vmap(result, axes, first)(inputs), first};
}

mx::array rows_first(const mx::array& input, int axis, int rows, mx::Stream stream) {
  if (axis >= 0) return mx::moveaxis(input, axis, 0, stream);
  mx::Shape shape = input.shape();
  shape.insert(shape.begin(), rows);
  return mx::broadcast_to(input, shape, stream);
}

int rows_of(const Arrays& inputs, const std::vector<int>& axes) {
  const auto first = std::ranges::find_if(axes, [](int axis) { return axis >= 0; }) - axes.begin();
  return inputs[static_cast<size_t>(first)].shape(axes[static_cast<size_t>(first)]);
}

}  // namespace cowmlx
