/* Rows of activations as products read them: four rows beside each other, number by number (int8:
 * four numbers by four), so that a product reads one stream for four rows. The last four are filled
 * up with zeros; one row alone stands alone. */
#pragma once

#include "beside.h"
#include "numbers.h"

namespace cowmlx::ISA {

/* How many rows stand beside each other where there are so many. */
COWMLX_INLINE int beside(int rows) { return rows == 1 ? 1 : 4; }

COWMLX_INLINE int filled_up(int rows) {
  return (rows + beside(rows) - 1) / beside(rows) * beside(rows);
}

COWMLX_INLINE bool is_dense(const Matrix& matrix) {
  return matrix.format == Format::Float32 || matrix.format == Format::Float16 ||
         matrix.format == Format::BFloat16;
}

/* Formats without an int8 form are computed exactly, even if they are to be rounded. */
COWMLX_INLINE bool has_int8(const Matrix& matrix) {
  switch (matrix.format) {
#define ANSWER(NAME, MODE, BITS, GROUP, CODE, ...) \
  case Format::NAME:                               \
    return CODE::HAS_INT8;
    COWMLX_FLOAT_FORMATS(ANSWER)
#undef ANSWER
    default:
      return matrix.format == Format::Affine;
  }
}

COWMLX_INLINE int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

struct Sizes {
  int64_t values, scales, sums; /* bytes */

  Sizes(const Matrix& matrix, int rows, bool int8) {
    const int full = filled_up(rows);
    const int64_t numbers = int64_t{full} * matrix.columns;
    const int64_t groups = is_dense(matrix) ? 0 : int64_t{full} * (matrix.columns / matrix.group);
    values = padded(int8 ? numbers : numbers * static_cast<int64_t>(sizeof(float)));
    const int64_t scaled = int8 ? numbers / rounded_together(matrix) : 0;
    scales = padded(scaled * static_cast<int64_t>(sizeof(float)));
    sums = padded(groups * static_cast<int64_t>(sizeof(float)));
  }
};

static inline size_t prepare_size(const Matrix& matrix, int rows, bool rounded) {
  const Sizes sizes(matrix, rows, rounded && has_int8(matrix));
  return static_cast<size_t>(sizes.values + sizes.scales + sizes.sums + 64);
}

/* Below it 127 / the largest number may be infinite: such numbers count as zeros. */
constexpr float TINY = 0x1p-110f;

/* Scales with which a row's numbers fit int8; 0 where all are tiny. One number that is not finite
 * makes all scales NaN, and with them the row's results. */
template <int TOGETHER>
static inline void int8_scales(const float* x, int columns, float* scales) {
  F differences = zero();
  for (int k = 0; k < columns; k += TOGETHER) {
    F most = zero();
    for (int i = k; i < k + TOGETHER; i += 16) {
      const F part = load(x + i);
      most = max(most, abs(part));
      differences = differences + (part - part);
    }
    const float largest = highest(most);
    scales[k / TOGETHER] = largest > TINY ? largest * (1.0f / 127) : 0;
  }
  if (sum(differences) == 0) return;
  for (int i = 0; i < columns / TOGETHER; i++) scales[i] = float_of(0x7fc00000);
}

/* Round numbers to int8 with a scale; adds what they stand for to `sum`. */
template <int COUNT>
COWMLX_INLINE void quantize_together(const float* x, float scale, int8_t* out, F& sum) {
  const F inverse = set(scale > 0 ? 1 / scale : 0);
  I total = zero_words();
  for (int i = 0; i < COUNT; i += 16) {
    const I rounded = round(load(x + i) * inverse);
    total = total + rounded;
    store_bytes(out + i, rounded);
  }
  sum = fma(convert(total), set(scale), sum);
}

/* Put a group's bytes where they meet the parts of the weights' words (int8_tile): four by four,
 * `pitch` bytes apart. */
static inline void place_group(int bits, int group, const int8_t* from, int8_t* out, int pitch) {
  if (bits == 4) {
    using Pairs [[gnu::vector_size(16)]] = uint16_t;
    using Bytes [[gnu::vector_size(8)]] = uint8_t;
    for (int i = 0; i < group; i += 16, out += 4 * pitch) {
      Pairs pairs;
      memcpy(&pairs, from + i, sizeof pairs);
      const Bytes even = __builtin_convertvector(pairs & 255, Bytes);
      const Bytes odd = __builtin_convertvector(pairs >> 8, Bytes);
      memcpy(out, &even, 4);
      memcpy(out + pitch, &odd, 4);
      memcpy(out + 2 * pitch, reinterpret_cast<const char*>(&even) + 4, 4);
      memcpy(out + 3 * pitch, reinterpret_cast<const char*>(&odd) + 4, 4);
    }
  } else if (bits == 2) {
    for (int i = 0; i < group; i += 16, out += 4 * pitch)
      for (int j = 0; j < 16; j++) out[j % 4 * pitch + j / 4] = from[i + j];
  } else {
    for (int i = 0; i < group; i += 4, out += pitch) memcpy(out, from + i, 4);
  }
}

template <bool AFFINE>
static void prepare_int8(const Matrix& matrix, const float* x, int row, int width, int8_t* values,
                         float* scales, float* sums) {
  constexpr int TOGETHER = rounded_together(AFFINE);
  const int group = matrix.group, groups = matrix.columns / group;
  int8_t rounded[128];
  int8_t* out = values + int64_t{row / width} * width * matrix.columns + row % width * 4;
  float* scale = scales + int64_t{row} * (matrix.columns / TOGETHER);
  int8_scales<TOGETHER>(x, matrix.columns, scale);
  for (int g = 0; g < groups; g++, out += group * width) {
    F sum = zero();
    for (int i = 0; i < group; i += TOGETHER)
      quantize_together<TOGETHER>(x + g * group + i, *scale++, rounded + i, sum);
    sums[int64_t{row} * groups + g] = ISA::sum(sum);
    place_group(matrix.bits, group, rounded, out, 4 * width);
  }
}

/* Rows as they are, four beside each other. */
static inline void place_rows(const float* x, int64_t stride, int rows, int columns, float* out) {
  int row = 0;
  for (; row + 4 <= rows; row += 4, x += 4 * stride, out += 4 * int64_t{columns}) {
    const float* four[] = {x, x + stride, x + 2 * stride, x + 3 * stride};
    beside_rows(four, columns, 4, out);
  }
  for (; row < rows; row++, x += stride, out++)
    for (int k = 0; k < columns; k++) out[int64_t{k} * 4] = x[k];
}

static inline void sum_groups(const Matrix& matrix, const float* x, int row, float* sums) {
  const int groups = matrix.columns / matrix.group;
  for (int g = 0; g < groups; g++) {
    F total = zero();
    for (int i = 0; i < matrix.group; i += 16) total = total + load(x + g * matrix.group + i);
    sums[int64_t{row} * groups + g] = ISA::sum(total);
  }
}

static inline void prepare(const Matrix& matrix, const float* x, int64_t stride, int rows,
                           bool rounded, void* scratch, Prepared* out) {
  const bool int8 = rounded && has_int8(matrix);
  const Sizes sizes(matrix, rows, int8);
  char* place = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(scratch) + 63) / 64 * 64);
  auto* scales = reinterpret_cast<float*>(place + sizes.values);
  auto* sums = reinterpret_cast<float*>(place + sizes.values + sizes.scales);
  const int width = beside(rows);
  if (filled_up(rows) != rows) memset(place, 0, prepare_size(matrix, rows, int8) - 64);
  *out = Prepared{rows, matrix.columns, int8, nullptr, nullptr, scales, sums};
  if (int8) {
    auto* values = reinterpret_cast<int8_t*>(place);
    const auto of_row = matrix.format == Format::Affine ? prepare_int8<true> : prepare_int8<false>;
    for (int row = 0; row < rows; row++)
      of_row(matrix, x + row * stride, row, width, values, scales, sums);
    out->quantized = values;
    return;
  }
  if (matrix.format == Format::Affine)
    for (int row = 0; row < rows; row++) sum_groups(matrix, x + row * stride, row, sums);
  out->x = x;
  if (rows == 1) return;
  auto* values = reinterpret_cast<float*>(place);
  place_rows(x, stride, rows, matrix.columns, values);
  out->x = values;
}

}  // namespace cowmlx::ISA
