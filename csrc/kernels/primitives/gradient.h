/* Gradients of operations that mlx has too: those of mlx's own, so that a network with kernels can
 * be trained. */
#pragma once

#include <vector>

#include "mlx/primitives.h"

#include "weights.h"

namespace cowmlx {

class WithGradient : public mlx::core::UnaryPrimitive {
 public:
  using UnaryPrimitive::UnaryPrimitive;

  Arrays vjp(const Arrays& primals, const Arrays& cotangents, const std::vector<int>& arguments,
             const Arrays& outputs) override;

 protected:
  /* The same result, of whatever type, by operations that have gradients. Throws
   * std::invalid_argument where mlx has none. */
  virtual mlx::core::array plainly(const Arrays& inputs) = 0;
};

}  // namespace cowmlx
