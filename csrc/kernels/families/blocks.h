/* Which tile of a product computes what. */
#pragma once

#include "tiles.h"

namespace cowmlx::ISA {

/* One product under way: what tiles need besides their place. */
struct Task {
  const Matrix& matrix;
  const Prepared& prepared;
  float* y;
  int64_t stride;
  int row_end;

  Output from(int row) const { return {y + row * stride, stride, row_end - row}; }
  int64_t groups() const { return matrix.columns / matrix.group; }
};

/* The largest tiles: as many sums as registers hold, beside what is multiplied. */
constexpr bool MANY_REGISTERS = VECTORS >= 32;
constexpr int STEP = 4; /* blocks whose weights are read from memory once for all rows */

/* Blocks from `block` to `end`, at most STEP, for M rows. */
template <class Kind, int M, int B>
COWMLX_INLINE void blocks(const Task& task, int row, int block, int end) {
  for (; block + B <= end; block += B) Kind::template tile<M, B>(task, row, block);
  constexpr int ONE = M == 1 ? 1 : 4;
  if constexpr (B > 1)
    for (; block < end; block++)
      for (int m = 0; m < M && row + m < task.row_end; m += ONE)
        Kind::template tile<ONE, 1>(task, row + m, block);
}

/* Rows from `row` (a multiple of 4) on. Blocks are the outer loop, so that weights are read once.
 */
template <class Kind>
static void product_of(const Task& task, int from, int to, int row) {
  constexpr bool WIDE = MANY_REGISTERS && !Kind::RARE;
  for (int block = from; block < to; block += STEP) {
    const int end = block + STEP < to ? block + STEP : to;
    int r = row;
    if (task.prepared.rows == 1) {
      blocks<Kind, 1, Kind::RARE ? 1 : STEP>(task, r, block, end);
      continue;
    }
    if constexpr (WIDE && !Kind::INTEGER) {
      for (; r + 12 <= task.row_end; r += 12) blocks<Kind, 12, 2>(task, r, block, end);
      for (; r + 4 < task.row_end; r += 8) blocks<Kind, 8, 2>(task, r, block, end);
    }
    for (; r < task.row_end; r += 4) blocks<Kind, 4, WIDE ? 4 : 1>(task, r, block, end);
  }
}

}  // namespace cowmlx::ISA
