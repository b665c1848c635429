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

}  // namespace cowmlx
