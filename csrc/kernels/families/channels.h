/* Sums over lines of numbers, column by column. Meanings in table.h. The including file has chosen
 * an instruction set. */
#pragma once

#include "../table.h"
#include "vectors.h"

namespace cowmlx::ISA {

/* B vectors of columns, of which the last may have fewer lanes. */
template <int B, bool PAIRS, bool CENTRED>
COWMLX_INLINE void column_sums(const float* a, const float* b, const float* centre, int64_t lines,
                               int64_t width, int lanes, float* sums, float* products) {
  F sum[B], product[B];
  for (int k = 0; k < B; k++) {
    sum[k] = get(sums + k * LANES, lanes);
    if constexpr (PAIRS) product[k] = get(products + k * LANES, lanes);
  }
  for (int64_t at = 0; at < lines * width; at += width)
    for (int k = 0; k < B; k++) {
      const F value = get(a + at + k * LANES, lanes);
      if constexpr (PAIRS) {
        const F other = get(b + at + k * LANES, lanes) - get(centre + k * LANES, lanes);
        const F first = CENTRED ? other : value;
        sum[k] = sum[k] + first;
        product[k] = fma(first, other, product[k]);
      } else {
        sum[k] = sum[k] + value;
      }
    }
  for (int k = 0; k < B; k++) {
    put(sums + k * LANES, sum[k], lanes);
    if constexpr (PAIRS) put(products + k * LANES, product[k], lanes);
  }
}

template <bool PAIRS, bool CENTRED>
COWMLX_INLINE void all_columns(const float* a, const float* b, const float* centre, int64_t lines,
                               int64_t width, int count, float* sums, float* products) {
  constexpr int B = VECTORS >= 16 ? 4 : 2;
  int i = 0;
  for (; i + B * LANES <= count; i += B * LANES)
    column_sums<B, PAIRS, CENTRED>(a + i, b + i, centre + i, lines, width, LANES, sums + i,
                                   products + i);
  for (; i < count; i += LANES)
    column_sums<1, PAIRS, CENTRED>(a + i, b + i, centre + i, lines, width,
                                   count - i < LANES ? count - i : LANES, sums + i, products + i);
}

COWMLX_KERNEL void line_sums(const float* a, const float* b, const float* centre, int64_t lines,
                             int64_t width, int count, float* sums, float* products) {
  if (centre == nullptr)
    all_columns<false, false>(a, a, a, lines, width, count, sums, sums);
  else if (b == nullptr)
    all_columns<true, true>(a, a, centre, lines, width, count, sums, products);
  else
    all_columns<true, false>(a, b, centre, lines, width, count, sums, products);
}

}  // namespace cowmlx::ISA
