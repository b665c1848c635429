/* Steps of optimizers, over numbers that lie beside each other. Meanings in table.h. The including
 * file has chosen an instruction set. */
#pragma once

#include "vectors.h"

#include "../table.h"

namespace cowmlx::ISA {

/* Each operation is rounded by itself, in the order in which mlx does them. */
COWMLX_KERNEL void adam(const AdamStep& step, const float* gradient, const AdamState& from,
                        const AdamResult& to, int n) {
  const F beta1 = set(step.beta1), rest1 = set(step.rest1);
  const F beta2 = set(step.beta2), rest2 = set(step.rest2);
  const F rate = set(step.rate), root = set(step.root), eps = set(step.eps), keep = set(step.keep);
  each_vector(n, [&](int i, int lanes) {
    const F g = get(gradient + i, lanes);
    const F m = beta1 * get(from.first + i, lanes) + rest1 * g;
    const F v = beta2 * get(from.second + i, lanes) + rest2 * (g * g);
    put(to.first + i, m, lanes);
    put(to.second + i, v, lanes);
    const F old = get(from.parameter + i, lanes) * keep;
    put(to.parameter + i, old - rate * m / (sqrt(v) * root + eps), lanes);
  });
}

}  // namespace cowmlx::ISA
