/* The table of a set that multiplies pairs of bfloat16: products of weights of bfloat16 and
 * activations that are rounded to it. All else is done by the set whose table COWMLX_BASE names.
 * Included by the file of that set. */
#pragma once

#include "base_table.h"
#include "tiles.h"

namespace cowmlx::ISA {

/* Whether activations are rounded. Their rows stand beside each other as in Prepared::x, pair by
 * pair of numbers. The last pair of an odd number of columns ends with 0. */
COWMLX_INLINE bool in_pairs(const Matrix& matrix, bool rounded) {
  return rounded && matrix.format == Format::BFloat16;
}

COWMLX_INLINE int64_t pairs_of(const Matrix& matrix) { return (int64_t{matrix.columns} + 1) / 2; }

static size_t size_of_pairs(const Matrix& matrix, int rows, bool rounded) {
  if (!in_pairs(matrix, rounded)) return COWMLX_BASE.prepare_size(matrix, rows, rounded);
  const int64_t words = filled_up(rows) * pairs_of(matrix);
  return static_cast<size_t>(padded(words * int64_t{sizeof(uint32_t)}) + 64);
}

static void prepare_pairs(const Matrix& matrix, const float* x, int64_t stride, int rows,
                          bool rounded, void* scratch, Prepared* out) {
  if (!in_pairs(matrix, rounded))
    return COWMLX_BASE.prepare(matrix, x, stride, rows, rounded, scratch, out);
  auto* place = reinterpret_cast<uint32_t*>((reinterpret_cast<uintptr_t>(scratch) + 63) / 64 * 64);
  const int width = beside(rows), columns = matrix.columns;
  const int64_t pairs = pairs_of(matrix);
  if (filled_up(rows) != rows) memset(place, 0, size_of_pairs(matrix, rows, true) - 64);
  for (int row = 0; row < rows; row++) {
    uint32_t* to = place + row / width * width * pairs + row % width;
    const float* from = x + row * stride;
    for (int k = 0; k < columns; k += 2 * LANES) {
      uint16_t rounded_numbers[2 * LANES];
      const int count = columns - k < 2 * LANES ? columns - k : 2 * LANES;
      const int first = count < LANES ? count : LANES, second = count - first;
      store_bfloat16(rounded_numbers, load(from + k, first), LANES);
      store_bfloat16(rounded_numbers + LANES, load(from + k + first, second), LANES);
      for (int i = 0; i < (count + 1) / 2; i++)
        memcpy(to + int64_t{k / 2 + i} * width, rounded_numbers + 2 * i, sizeof(uint32_t));
    }
  }
  *out = Prepared{rows, columns, false, nullptr, nullptr, nullptr, nullptr, place};
}

/* Numbers k and k + 1 of 16 rows, in pairs. */
COWMLX_INLINE I weight_pairs(const uint16_t* w, I order, bool both) {
  const I numbers = both ? load_words(w) : load_half(w);
  return permute_halves(order, numbers);
}

template <int M, int B>
static void pairs_tile(const Matrix& matrix, const uint32_t* x, int64_t run, int block,
                       const Output& out) {
  const int64_t columns = matrix.columns, pairs = pairs_of(matrix), next = columns * LANES;
  const auto* w = static_cast<const uint16_t*>(matrix.weight) + block * next;
  const I order = interleaved();
  F total[M][B];
  for (int m = 0; m < M; m++)
    for (int b = 0; b < B; b++) total[m][b] = zero();
  const auto add = [&](int64_t k, int64_t behind, bool both) __attribute__((always_inline)) {
    I weight[B];
    for (int b = 0; b < B; b++) weight[b] = weight_pairs(w + b * next + 2 * k * LANES, order, both);
    ask_for<M, B>(w + 2 * k * LANES, behind, next * 2);
    for (int m = 0; m < M; m++) {
      const I value = broadcast(at<M>(x, run, k, m));
      for (int b = 0; b < B; b++) total[m][b] = dot2(total[m][b], weight[b], value);
    }
  };
  const int64_t whole = columns / 2;
  each_step<M, B>(whole, WORD, [&](int64_t k, int64_t behind) __attribute__((always_inline)) {
    add(k, behind, true);
  });
  if (whole < pairs) add(whole, 0, false);
  write(matrix, block, total, out);
}

struct Pairs {
  static constexpr bool RARE = false, INTEGER = false, STREAMS = true;
  static constexpr int ONE_ROW = STEP;

  template <int M, int B>
  static COWMLX_MEMBER void tile(const Task& task, int row, int block) {
    const int64_t pairs = pairs_of(task.matrix);
    pairs_tile<M, B>(task.matrix, task.prepared.pairs + row * pairs, WIDTH<M> * pairs, block,
                     task.from(row));
  }
};

static void product_of_pairs(const Matrix& matrix, const Prepared& prepared, int from, int to,
                             int row, int row_end, float* y, int64_t stride) {
  if (prepared.pairs == nullptr)
    return COWMLX_BASE.product(matrix, prepared, from, to, row, row_end, y, stride);
  if (row >= row_end) return;
  product_of<Pairs>(Task{matrix, prepared, y, stride, row, row_end}, from, to, row);
}

static constexpr Table filled(const char* name) {
  Table table = without_products(name);
  table.prepare_size = size_of_pairs;
  table.prepare = prepare_pairs;
  table.product = product_of_pairs;
  table.row_numbers = Base<&Table::row_numbers>::function;
  return table;
}

}  // namespace cowmlx::ISA
