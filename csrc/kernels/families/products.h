/* Products of prepared rows with a matrix, and its rows as numbers. The including file has an
 * exact_product(), its own or that of exact_products.h. */
#pragma once

#include "int8_products.h"

namespace cowmlx::ISA {

static void product(const Matrix& matrix, const Prepared& prepared, int from, int to, int row,
                    int row_end, float* y, int64_t stride) {
  if (row >= row_end) return;
  const Task task{matrix, prepared, y, stride, row_end};
  if (prepared.int8)
    int8_product(task, from, to, row);
  else
    exact_product(task, from, to, row);
}

/* Number k of a row, one at a time. */
static float number_of(const Matrix& matrix, int row, int k) {
  const int64_t block = row / LANES, lane = row % LANES;
  if (is_dense(matrix)) {
    const int64_t place = (block * matrix.columns + k) * LANES + lane;
    if (matrix.format == Format::Float32) return static_cast<const float*>(matrix.weight)[place];
    const uint16_t bits = static_cast<const uint16_t*>(matrix.weight)[place];
    return matrix.format == Format::Float16 ? from_float16(bits) : from_bfloat16(bits);
  }
  const int64_t words = int64_t{matrix.columns} * matrix.bits / 32;
  const int64_t bit = int64_t{k} * matrix.bits, word = bit / 32;
  const uint32_t* w = static_cast<const uint32_t*>(matrix.weight) + block * words * LANES + lane;
  uint64_t bits = w[word * LANES];
  if (word + 1 < words) bits |= static_cast<uint64_t>(w[(word + 1) * LANES]) << 32;
  const uint32_t code = static_cast<uint32_t>(bits >> (bit % 32)) & ((1u << matrix.bits) - 1);
  const int64_t groups = matrix.columns / matrix.group;
  const int64_t at = (block * groups + k / matrix.group) * LANES + lane;
  const auto scalar = [&](const void* p) {
    if (matrix.scale_type == Scalar::Float32) return static_cast<const float*>(p)[at];
    if (matrix.scale_type == Scalar::Float16)
      return from_float16(static_cast<const uint16_t*>(p)[at]);
    if (matrix.scale_type == Scalar::BFloat16)
      return from_bfloat16(static_cast<const uint16_t*>(p)[at]);
    return byte_scale(matrix.format, static_cast<const uint8_t*>(p)[at]);
  };
  const float scale = scalar(matrix.scales);
  switch (matrix.format) {
#define DECODE(NAME, MODE, BITS, GROUP, CODE, ...) \
  case Format::NAME:                               \
    return scale * CODE::scalar(code);
    COWMLX_FLOAT_FORMATS(DECODE)
#undef DECODE
    default:
      return scale * static_cast<float>(code) + scalar(matrix.biases);
  }
}

static void unpack_row(const Matrix& matrix, int row, float* out) {
  for (int k = 0; k < matrix.columns; k++) out[k] = number_of(matrix, row, k);
}

}  // namespace cowmlx::ISA
