/* Selections of a part of many numbers, without sorting them. */
#pragma once

#include <cstdint>

namespace cowmlx {

/* The least of `numbers` (not negative, perhaps infinite) such that all up to it weigh `target`, or
 * infinity if all together weigh less. `weights` null: each weighs 1. */
float reach(const float* numbers, const float* weights, int n, double target);

}  // namespace cowmlx
