/* The recurrence of a matrix memory; meaning in table.h. Lanes hold columns of the memory, and some
 * positions are taken in one pass over it. The including file has chosen an instruction set. */
#pragma once

#include "vectors.h"

#include "../table.h"

namespace cowmlx::ISA {

constexpr int STEPS = VECTORS >= 32 ? 4 : 2;
constexpr int COLUMNS = VECTORS >= 32 ? 2 : 1; /* vectors of columns that stay in registers */

/* Positions [t, t + P) for W vectors of columns from `column` on, the last of which has `lanes`. */
template <int P, int W>
COWMLX_INLINE void recur_some(const Recurrence& r, int t, int64_t column, int lanes) {
  F values[P][W], found[P][W], forget[P];
  for (int p = 0; p < P; p++) {
    forget[p] = set(r.forget[t + p]);
    const float* v = r.values + (t + p) * r.value_stride + column;
    for (int w = 0; w < W; w++) {
      values[p][w] = get(v + w * LANES, lanes) * set(r.take[t + p]);
      found[p][w] = zero();
    }
  }
  const float* k = r.keys + t * r.key_stride;
  const float* q = r.queries + t * r.query_stride;
  float* row = r.memory + column;
  for (int d = 0; d < r.key_dim; d++, row += r.memory_stride) {
    F memory[W];
    for (int w = 0; w < W; w++) memory[w] = get(row + w * LANES, lanes);
    for (int p = 0; p < P; p++) {
      F key = set(k[p * r.key_stride + d]), query = set(q[p * r.query_stride + d]);
      for (int w = 0; w < W; w++) {
        memory[w] = fma(key, values[p][w], memory[w] * forget[p]);
        found[p][w] = fma(query, memory[w], found[p][w]);
      }
    }
    for (int w = 0; w < W; w++) put(row + w * LANES, memory[w], lanes);
  }
  for (int p = 0; p < P; p++)
    for (int w = 0; w < W; w++)
      put(r.out + (t + p) * r.out_stride + column + w * LANES, found[p][w] * set(r.scale[t + p]),
          lanes);
}

template <int W>
COWMLX_INLINE void recur_columns(const Recurrence& r, int64_t column, int lanes) {
  int t = 0;
  for (; t + STEPS <= r.positions; t += STEPS) recur_some<STEPS, W>(r, t, column, lanes);
  for (; t < r.positions; t++) recur_some<1, W>(r, t, column, lanes);
}

COWMLX_KERNEL void recurrence(const Recurrence& r) {
  int column = 0;
  for (; column + COLUMNS * LANES <= r.columns; column += COLUMNS * LANES)
    recur_columns<COLUMNS>(r, column, LANES);
  for (; column + LANES <= r.columns; column += LANES) recur_columns<1>(r, column, LANES);
  if (column < r.columns) recur_columns<1>(r, column, r.columns - column);
}

}  // namespace cowmlx::ISA
