/* Gradients of functions of rows. */
#pragma once

#include "operation.h"

namespace cowmlx {

/* Those of x (..., N), of a weight and of a bias (N,), all float32, for the gradient `by` of what
 * layer_norm, or rms_norm if not `centred`, makes of x. There is at least one number. */
Arrays norm_gradients(bool centred, float eps, const mx::array& x,
                      const std::optional<mx::array>& weight, const mx::array& by,
                      mx::Stream stream);

/* by * gelu'(x), all float32. */
mx::array gelu_gradient(const mx::array& x, const mx::array& by, mx::Stream stream);

}  // namespace cowmlx
