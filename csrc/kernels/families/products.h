/* Products of prepared rows with a matrix, a kind of tile for each format, and the matrix's rows as
 * numbers. Where COWMLX_BASE is defined, that table has the exact products. */
#pragma once

#include "panels.h"

namespace cowmlx::ISA {

#ifdef COWMLX_BASE

static void exact_product(const Task& task, int from, int to, int row) {
  COWMLX_BASE.product(task.matrix, task.prepared, from, to, row, task.row_end, task.y, task.stride);
}

#else

/* Formats as one type each, with a function `tile<M, B>(task, row, block)`, where B is ONE_ROW for
 * one row, and 1 where that STREAMS. Rare ones have fewer tiles, for the sake of the library's
 * size. */
template <class T, Format FORMAT>
struct Dense {
  static constexpr bool RARE = false, INTEGER = false, STREAMS = sizeof(T) == 4;
  static constexpr int ONE_ROW = STEP;

  template <int M, int B>
  static COWMLX_MEMBER void tile(const Task& task, int row, int block) {
    const int64_t columns = task.matrix.columns;
    dense_tile<T, FORMAT, M, B>(task.matrix, task.prepared.x + row * columns, WIDTH<M> * columns,
                                block, task.from(row));
  }
};

template <class Code, bool IS_RARE>
struct Exact {
  static constexpr bool RARE = IS_RARE, INTEGER = false, STREAMS = false;
  static constexpr int ONE_ROW = RARE ? 1 : MANY_REGISTERS ? STEP : 2;

  template <int M, int B>
  static COWMLX_MEMBER void tile(const Task& task, int row, int block) {
    const int64_t columns = task.matrix.columns;
    exact_tile<Code, M, B>(task.matrix, task.prepared.x + row * columns, WIDTH<M> * columns,
                           task.prepared.sums + row * task.groups(), block, task.from(row));
  }
};

static inline void exact_product(const Task& task, int from, int to, int row) {
  switch (task.matrix.format) {
    case Format::Float32:
      return product_of<Dense<float, Format::Float32>>(task, from, to, row);
    case Format::Float16:
      return product_of<Dense<uint16_t, Format::Float16>>(task, from, to, row);
    case Format::BFloat16:
      return product_of<Dense<uint16_t, Format::BFloat16>>(task, from, to, row);
#define RUN(NAME, MODE, BITS, GROUP, CODE, ...) \
  case Format::NAME:                            \
    return product_of<Exact<CODE, true>>(task, from, to, row);
      COWMLX_FLOAT_FORMATS(RUN)
#undef RUN
    case Format::Affine:
      break;
  }
  switch (task.matrix.bits) {
    case 2:
      return product_of<Exact<AffineCode<2>, true>>(task, from, to, row);
    case 3:
      return product_of<Exact<AffineCode<3>, true>>(task, from, to, row);
    case 4:
      if (product_by_panels<AffineCode<4>>(task, from, to, row)) return;
      return product_of<Exact<AffineCode<4>, false>>(task, from, to, row);
    case 5:
      return product_of<Exact<AffineCode<5>, true>>(task, from, to, row);
    case 6:
      return product_of<Exact<AffineCode<6>, true>>(task, from, to, row);
    default:
      if (product_by_panels<AffineCode<8>>(task, from, to, row)) return;
      return product_of<Exact<AffineCode<8>, false>>(task, from, to, row);
  }
}

#endif

/* As the kinds of exact products. */
template <class Code, int BITS, bool IS_RARE>
struct Int8 {
  static constexpr bool RARE = IS_RARE, INTEGER = true, STREAMS = true;
  static constexpr int ONE_ROW = RARE ? 1 : MANY_REGISTERS || BITS == 8 ? STEP : 2;

  /* Only the first rows ask for weights: the next ones find them in the cache, and loads are what
   * tiles run out of (8 bits on an AMD EPYC (Zen 5): 5 % more). */
  template <int M, int B>
  static COWMLX_MEMBER void tile(const Task& task, int row, int block) {
    if (RARE || M == 1 || row == task.row)
      tile<M, B, true>(task, row, block);
    else
      tile<M, B, RARE || M == 1>(task, row, block);
  }

  template <int M, int B, bool ASKS>
  static COWMLX_MEMBER void tile(const Task& task, int row, int block) {
    const int64_t columns = task.matrix.columns, groups = task.groups();
    const int64_t scales = columns / rounded_together(task.matrix);
    int8_tile<Code, BITS, M, B, ASKS>(task.matrix, task.prepared.quantized + row * columns,
                                      WIDTH<M> * columns / 4, task.prepared.scales + row * scales,
                                      task.prepared.sums + row * groups, block, task.from(row));
  }
};

static inline void int8_product(const Task& task, int from, int to, int row) {
  if (task.matrix.format != Format::Affine) /* float formats that has_int8() accepts */
    return product_of<Int8<Float4Code, 4, true>>(task, from, to, row);
  switch (task.matrix.bits) {
    case 2:
      return product_of<Int8<AffineCode<2>, 2, true>>(task, from, to, row);
    case 3:
      return product_of<Int8<AffineCode<3>, 3, true>>(task, from, to, row);
    case 4:
      return product_of<Int8<AffineCode<4>, 4, false>>(task, from, to, row);
    case 5:
      return product_of<Int8<AffineCode<5>, 5, true>>(task, from, to, row);
    case 6:
      return product_of<Int8<AffineCode<6>, 6, true>>(task, from, to, row);
    default:
      return product_of<Int8<AffineCode<8>, 8, false>>(task, from, to, row);
  }
}

static void product(const Matrix& matrix, const Prepared& prepared, int from, int to, int row,
                    int row_end, float* y, int64_t stride) {
  if (row >= row_end) return;
  const Task task{matrix, prepared, y, stride, row, row_end};
  if (prepared.int8)
    int8_product(task, from, to, row);
  else
    exact_product(task, from, to, row);
}

template <class F>
static inline void dense_row(const Matrix& matrix, int row, float* out, F&& number) {
  const int64_t first = int64_t{row / LANES} * matrix.columns * LANES + row % LANES;
  for (int k = 0; k < matrix.columns; k++) out[k] = number(first + int64_t{k} * LANES);
}

/* Number `at` of scales or biases. */
static inline float scale_at(const Matrix& matrix, const void* scales, int64_t at) {
  switch (matrix.scale_type) {
    case Scalar::Float32:
      return static_cast<const float*>(scales)[at];
    case Scalar::Float16:
      return from_float16(static_cast<const uint16_t*>(scales)[at]);
    case Scalar::BFloat16:
      return from_bfloat16(static_cast<const uint16_t*>(scales)[at]);
    default:
      return byte_scale(matrix.format, static_cast<const uint8_t*>(scales)[at]);
  }
}

/* The number that an integer of a quantized format encodes. */
static inline float decoded(const Matrix& matrix, uint32_t code, float scale, float bias) {
  switch (matrix.format) {
#define DECODE(NAME, MODE, BITS, GROUP, CODE, ...) \
  case Format::NAME:                               \
    return scale * CODE::scalar(code);
    COWMLX_FLOAT_FORMATS(DECODE)
#undef DECODE
    default:
      return scale * static_cast<float>(code) + bias;
  }
}

/* A group of a row whose words have whole numbers. */
template <int BITS>
static inline void affine_row(const uint32_t* w, int group, float scale, float bias, float* out) {
  constexpr int NUMBERS = 32 / BITS;
  for (int k = 0; k < group; k += NUMBERS, w += LANES)
    for (int j = 0; j < NUMBERS; j++)
      out[k + j] = scale * static_cast<float>(*w >> (BITS * j) & ((1u << BITS) - 1)) + bias;
}

static inline void quantized_row(const Matrix& matrix, int row, float* out) {
  const int64_t block = row / LANES, lane = row % LANES;
  const int64_t words = int64_t{matrix.columns} * matrix.bits / 32;
  const uint32_t* w = static_cast<const uint32_t*>(matrix.weight) + block * words * LANES + lane;
  const uint32_t mask = (1u << matrix.bits) - 1;
  const int group = matrix.group, groups = matrix.columns / group;
  const bool affine = matrix.format == Format::Affine;
  for (int g = 0, k = 0; g < groups; g++) {
    const int64_t at = (block * groups + g) * LANES + lane;
    const float scale = scale_at(matrix, matrix.scales, at);
    const float bias = affine ? scale_at(matrix, matrix.biases, at) : 0;
    if (affine && (matrix.bits == 8 || matrix.bits == 4)) {
      const auto of_group = matrix.bits == 8 ? affine_row<8> : affine_row<4>;
      of_group(w + k * matrix.bits / 32 * LANES, group, scale, bias, out + k);
      k += group;
      continue;
    }
    for (const int end = k + group; k < end; k++) {
      const int64_t bit = int64_t{k} * matrix.bits, word = bit / 32;
      uint64_t bits = w[word * LANES];
      if (word + 1 < words) bits |= static_cast<uint64_t>(w[(word + 1) * LANES]) << 32;
      out[k] = decoded(matrix, static_cast<uint32_t>(bits >> (bit % 32)) & mask, scale, bias);
    }
  }
}

static void row_numbers(const Matrix& matrix, int row, float* out) {
  const auto* half = static_cast<const uint16_t*>(matrix.weight);
  switch (matrix.format) {
    case Format::Float32:
      return dense_row(
          matrix, row, out,
          [weight = static_cast<const float*>(matrix.weight)](int64_t at) { return weight[at]; });
    case Format::Float16:
      return dense_row(matrix, row, out, [half](int64_t at) { return from_float16(half[at]); });
    case Format::BFloat16:
      return dense_row(matrix, row, out, [half](int64_t at) { return from_bfloat16(half[at]); });
    default:
      return quantized_row(matrix, row, out);
  }
}

}  // namespace cowmlx::ISA
