/* Going over n numbers by vectors of 16 lanes. The including file has chosen an instruction set. */
#pragma once

#include "../matrix.h"

/* A table's entry: all that it calls is made part of it, so that the number of lanes, where it is
 * 16, is a constant, and full vectors need no masks. */
#define COWMLX_KERNEL static __attribute__((flatten))

namespace cowmlx::ISA {

COWMLX_INLINE F get(const float* p, int lanes) { return lanes == LANES ? load(p) : load(p, lanes); }

COWMLX_INLINE void put(float* p, F a, int lanes) {
  if (lanes == LANES)
    store(p, a);
  else
    store(p, a, lanes);
}

/* The first lanes of a; 0 in the rest. */
COWMLX_INLINE F only(F a, int lanes) {
  if (lanes == LANES) return a;
  float kept[LANES] = {};
  store(kept, a, lanes);
  return load(kept);
}

/* body(i, lanes) for every 16 of n numbers, and for the rest. */
template <class Body>
COWMLX_INLINE void each_vector(int n, Body body) {
  int i = 0;
  for (; i + LANES <= n; i += LANES) body(i, LANES);
  if (i < n) body(i, n - i);
}

}  // namespace cowmlx::ISA
