/* Rows of activations as products read them: four rows beside each other, number by number (int8:
 * four numbers by four), so that a product reads one stream for four rows. The last four are filled
 * up with zeros; one row alone stands alone. */
#pragma once

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

/* Formats without an int8 form are computed exactly, even if int8 was requested. */
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
    scales = int8 ? padded(groups * static_cast<int64_t>(sizeof(float))) : 0;
    sums = padded(groups * static_cast<int64_t>(sizeof(float)));
  }
};

static inline size_t prepare_size(const Matrix& matrix, int rows, bool int8) {
  const Sizes sizes(matrix, rows, int8 && has_int8(matrix));
  return static_cast<size_t>(sizes.values + sizes.scales + sizes.sums + 64);
}

/* Below it 127 / the largest number may be infinite: a group of such numbers counts as zeros. */
constexpr float TINY = 0x1p-110f;

/* Round a group to int8: its scale, and d times the sum of what it was rounded to. Numbers that are
 * not finite make the scale so, and with it the result. */
static inline void quantize_group(const float* x, int group, int8_t* out, float* scale,
                                  float* sum) {
  F most = zero(), differences = zero();
  for (int i = 0; i < group; i += 16) {
    const F part = abs(load(x + i));
    most = max(most, part);
    differences = differences + (part - part);
  }
  const bool finite = ISA::sum(differences) == 0;
  const float largest = highest(most);
  if (!finite || !(largest > TINY)) {
    memset(out, 0, static_cast<size_t>(group));
    *scale = *sum = finite ? 0 : float_of(0x7fc00000);
    return;
  }
  const F inverse = set(127 / largest);
  I total = zero_words();
  for (int i = 0; i < group; i += 16) {
    const I rounded = round(load(x + i) * inverse);
    total = total + rounded;
    store_bytes(out + i, rounded);
  }
  *scale = largest / 127;
  *sum = *scale * ISA::sum(convert(total));
}

/* The low halves of four words of 16 bits. */
COWMLX_INLINE uint32_t low_bytes(uint64_t words) {
  words &= 0x00ff00ff00ff00ff;
  words = (words | words >> 8) & 0x0000ffff0000ffff;
  return static_cast<uint32_t>(words | words >> 16);
}

/* Put a group's bytes where they meet the parts of the weights' words (int8_tile): four by four,
 * `pitch` bytes apart. */
static inline void place_group(int bits, int group, const int8_t* from, int8_t* out, int pitch) {
  if (bits == 4) {
    for (int i = 0; i < group; i += 8, out += 2 * pitch) {
      uint64_t eight;
      memcpy(&eight, from + i, sizeof eight);
      const uint32_t even = low_bytes(eight), odd = low_bytes(eight >> 8);
      memcpy(out, &even, sizeof even);
      memcpy(out + pitch, &odd, sizeof odd);
    }
  } else if (bits == 2) {
    for (int i = 0; i < group; i += 16, out += 4 * pitch)
      for (int j = 0; j < 16; j++) out[j % 4 * pitch + j / 4] = from[i + j];
  } else {
    for (int i = 0; i < group; i += 4, out += pitch) memcpy(out, from + i, 4);
  }
}

static inline void prepare_int8(const Matrix& matrix, const float* x, int row, int width,
                                int8_t* values, float* scales, float* sums) {
  const int group = matrix.group, groups = matrix.columns / group;
  int8_t rounded[128];
  int8_t* out = values + int64_t{row / width} * width * matrix.columns + row % width * 4;
  for (int g = 0; g < groups; g++, out += group * width) {
    const int64_t at = int64_t{row} * groups + g;
    quantize_group(x + g * group, group, rounded, scales + at, sums + at);
    place_group(matrix.bits, group, rounded, out, 4 * width);
  }
}

static inline void prepare_exact(const Matrix& matrix, const float* x, int row, int width,
                                 float* values, float* sums) {
  const int columns = matrix.columns;
  if (values != nullptr) {
    float* out = values + int64_t{row / width} * width * columns + row % width;
    for (int k = 0; k < columns; k++) out[int64_t{k} * width] = x[k];
  }
  if (matrix.format != Format::Affine) return;
  const int groups = columns / matrix.group;
  for (int g = 0; g < groups; g++) {
    F total = zero();
    for (int i = 0; i < matrix.group; i += 16) total = total + load(x + g * matrix.group + i);
    sums[int64_t{row} * groups + g] = ISA::sum(total);
  }
}

static inline void prepare(const Matrix& matrix, const float* x, int64_t stride, int rows,
                           bool int8, void* scratch, Prepared* out) {
  int8 = int8 && has_int8(matrix);
  const Sizes sizes(matrix, rows, int8);
  char* place = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(scratch) + 63) / 64 * 64);
  auto* scales = reinterpret_cast<float*>(place + sizes.values);
  auto* sums = reinterpret_cast<float*>(place + sizes.values + sizes.scales);
  const int width = beside(rows);
  if (filled_up(rows) != rows) memset(place, 0, prepare_size(matrix, rows, int8) - 64);
  *out = Prepared{rows, matrix.columns, int8, nullptr, nullptr, scales, sums};
  if (int8) {
    auto* values = reinterpret_cast<int8_t*>(place);
    for (int row = 0; row < rows; row++)
      prepare_int8(matrix, x + row * stride, row, width, values, scales, sums);
    out->quantized = values;
    return;
  }
  auto* values = rows == 1 ? nullptr : reinterpret_cast<float*>(place);
  for (int row = 0; row < rows; row++)
    prepare_exact(matrix, x + row * stride, row, width, values, sums);
  out->x = rows == 1 ? x : values;
}

}  // namespace cowmlx::ISA
