/* What convolutions need beside products and rows beside each other: depthwise sums. Meanings in
 * table.h. The including file has chosen an instruction set. */
#pragma once

#include "beside.h"

namespace cowmlx::ISA {

/* COUNT vectors of channels over all taps: a chain of sums alone would wait for itself. */
template <int COUNT>
COWMLX_INLINE void channels(const float* const* taps, const float* weight, int count, int i,
                            const float* bias, float* out) {
  F total[COUNT];
  for (F& sum : total) sum = zero();
  for (int tap = 0; tap < count; tap++)
    for (int v = 0; v < COUNT; v++)
      total[v] = fma(load(taps[tap] + i + v * LANES),
                     load(weight + (int64_t{i + v * LANES} * count + tap * LANES)), total[v]);
  for (int v = 0; v < COUNT; v++, i += LANES)
    store(out + i, bias == nullptr ? total[v] : total[v] + load(bias + i));
}

COWMLX_KERNEL void by_channels(const float* const* taps, const float* weight, int count, int n,
                               const float* bias, float* out) {
  int i = 0;
  for (; i + 4 * LANES <= n; i += 4 * LANES) channels<4>(taps, weight, count, i, bias, out);
  for (; i + LANES <= n; i += LANES) channels<1>(taps, weight, count, i, bias, out);
  if (i == n) return;
  F total = zero();
  for (int tap = 0; tap < count; tap++)
    total = fma(load(taps[tap] + i, n - i), load(weight + int64_t{i} * count + tap * LANES), total);
  store(out + i, bias == nullptr ? total : total + load(bias + i, n - i), n - i);
}

}  // namespace cowmlx::ISA

#undef COWMLX_SHUFFLE
