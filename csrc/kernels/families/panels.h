/* Products of many rows of exact activations with quantized weights. A panel is one group of
 * columns of a few blocks. Its weights are decoded to float32 once for all rows, and stay in the L1
 * cache.
 *
 * Each sum is the same chain of operations as in exact_tile(), so a prompt has the same bits as its
 * tokens one by one. */
#pragma once

#include "tiles.h"

namespace cowmlx::ISA {

constexpr int PANEL_COLUMNS = 128, PANEL_ROWS = 128; /* at most */
constexpr int PANEL_BLOCKS = MANY_REGISTERS ? 2 : 1;
constexpr int FEWEST_PANEL_ROWS = MANY_REGISTERS ? 32 : 9; /* two tiles have 8 */

/* Group `index` of blocks [block, block + B). */
template <int B>
struct Panel {
  F weights[PANEL_COLUMNS][B];
  F unit[B], bias[B];
  int block, index;
};

template <class Code, int B>
static void fill_panel(const Matrix& matrix, Panel<B>& panel) {
  constexpr int WORDS = Code::WORDS, NUMBERS = Code::NUMBERS;
  const int64_t words = int64_t{matrix.columns} / NUMBERS * WORDS;
  const int64_t first = int64_t{panel.index} * matrix.group / NUMBERS * WORDS;
  const auto* w =
      static_cast<const uint32_t*>(matrix.weight) + (panel.block * words + first) * LANES;
  const F table = Code::table();
  for (int k = 0; k < matrix.group; k += NUMBERS, w += WORDS * LANES)
    for (int b = 0; b < B; b++) {
      I word[WORDS];
      for (int i = 0; i < WORDS; i++) word[i] = load_words(w + (b * words + i) * LANES);
      unrolled<NUMBERS>([&](auto j) __attribute__((always_inline)) {
        constexpr int J = decltype(j)::value;
        panel.weights[k + J][b] = Code::template value<J>(word, table);
      });
    }
  F scale[B], bias[B];
  const int groups = matrix.columns / matrix.group;
  load_group<B, true>(matrix, panel.block, panel.index, groups, scale, bias);
  for (int b = 0; b < B; b++) {
    panel.unit[b] = Code::UNIT == 1 ? scale[b] : scale[b] * set(Code::UNIT);
    panel.bias[b] = fma(scale[b], set(Code::MIDDLE), bias[b]);
  }
}

/* Add a panel's products to the totals of M rows, [M][B]; write the totals after the last group. */
template <int M, int B>
static void panel_tile(const Task& task, const Panel<B>& panel, int row, F* totals) {
  const int64_t columns = task.matrix.columns, groups = task.groups();
  const int group = task.matrix.group;
  const float* x = task.prepared.x + row * columns + int64_t{panel.index} * group * WIDTH<M>;
  F part[M][B];
  for (int m = 0; m < M; m++)
    for (int b = 0; b < B; b++) part[m][b] = zero();
  for (int k = 0; k < group; k++)
    for (int m = 0; m < M; m++) {
      const F number = set(*at<M>(x, WIDTH<M> * columns, k, m));
      for (int b = 0; b < B; b++)
        part[m][b] = in_turn(fma(panel.weights[k][b], number, part[m][b]));
    }
  const float* sums = task.prepared.sums + row * groups + panel.index;
  unrolled<M>([&](auto m) __attribute__((always_inline)) {
    constexpr int ROW = decltype(m)::value;
    const F sum = set(sums[ROW * groups]);
    for (int b = 0; b < B; b++) {
      F& total = totals[ROW * B + b];
      total = fma(panel.bias[b], sum, fma(part[ROW][b], panel.unit[b], total));
    }
  });
  if (panel.index + 1 < groups) return;
  F total[M][B];
  for (int m = 0; m < M; m++)
    for (int b = 0; b < B; b++) total[m][b] = totals[m * B + b];
  write(task.matrix, panel.block, total, task.from(row));
}

/* At most PANEL_ROWS rows, and B blocks. */
template <class Code, int B>
static void panel_rows(const Task& task, int block, int row, int row_end) {
  Panel<B> panel;
  F totals[PANEL_ROWS * B];
  for (F& total : totals) total = zero();
  panel.block = block;
  for (panel.index = 0; panel.index < task.groups(); panel.index++) {
    fill_panel<Code>(task.matrix, panel);
    int r = row;
    if constexpr (MANY_REGISTERS) {
      for (; r + 12 <= row_end; r += 12) panel_tile<12>(task, panel, r, totals + (r - row) * B);
      for (; r + 4 < row_end; r += 8) panel_tile<8>(task, panel, r, totals + (r - row) * B);
    }
    for (; r < row_end; r += 4) panel_tile<4>(task, panel, r, totals + (r - row) * B);
  }
}

/* Compute rows from `row` (a multiple of 4) on by panels; false, and nothing is computed, for few
 * rows. */
template <class Code>
static bool product_by_panels(const Task& task, int from, int to, int row) {
  constexpr int B = PANEL_BLOCKS;
  if (task.row_end - row < FEWEST_PANEL_ROWS || task.matrix.group > PANEL_COLUMNS) return false;
  for (; from < to; from += B)
    for (int begin = row; begin < task.row_end; begin += PANEL_ROWS) {
      const int end = begin + PANEL_ROWS < task.row_end ? begin + PANEL_ROWS : task.row_end;
      if (from + B <= to)
        panel_rows<Code, B>(task, from, begin, end);
      else
        panel_rows<Code, 1>(task, from, begin, end);
    }
  return true;
}

}  // namespace cowmlx::ISA
