/* Weights as kernels read them.
 *
 * A matrix of N rows (outputs) and K columns (inputs) is stored by blocks of LANES rows: block b
 * holds rows 16 b … 16 b + 15, word after word, the 16 rows' words beside each other:
 *
 *     weight[block][word][lane]     scales[block][group][lane]     biases[block][group][lane]
 *
 * so a vector of 16 lanes holds the same word of 16 rows, and a product needs no sum across lanes.
 * A word is one number for dense weights (K words a row), and one uint32 of mlx's packing for
 * quantized ones (K * bits / 32 words a row). The last block is filled up with rows of zeros. */
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats.h"

namespace cowmlx {

constexpr int LANES = 16;

#define COWMLX_NAME(NAME, ...) , NAME
enum class Format : int32_t {
  Float32,
  Float16,
  BFloat16,
  Affine COWMLX_FLOAT_FORMATS(COWMLX_NAME)
};
#undef COWMLX_NAME
enum class Scalar : int32_t { Float32, Float16, BFloat16, UInt8 };

/* Bytes of a number. */
constexpr size_t size_of(Scalar type) {
  return type == Scalar::Float32 ? 4 : type == Scalar::UInt8 ? 1 : 2;
}

struct LowRank;

struct Matrix {
  Format format;
  int32_t bits;    /* of a quantized number: 2, 3, 4, 5, 6, 8; dense: 16 or 32 */
  int32_t group;   /* numbers that share a scale: 32, 64, 128 (16 for nvfp4); dense: 0 */
  int32_t rows;    /* N, without the filling */
  int32_t columns; /* K */
  const void* weight;
  const void* scales; /* quantized only */
  const void* biases; /* affine only: w = scale * q + bias */
  Scalar scale_type;  /* of scales and biases; UInt8 for the fp formats' exponents */
  const float* bias;  /* (N,) added to the product, or null */
  /* What layers add to the product besides, or null; the product itself knows nothing of it. */
  const LowRank* low = nullptr;

  int blocks() const { return (rows + LANES - 1) / LANES; }
};

/* An adapter's part of a matrix (arXiv 2106.09685): up (down x), both dense float32. */
struct LowRank {
  Matrix down; /* (R, K) */
  Matrix up;   /* (N, R), scaled */
  /* (N,) what the matrix' product is multiplied with before, so that rows have trained lengths
   * (arXiv 2402.09353), or null. */
  const float* rescale = nullptr;
};

/* Numbers of a row that share a scale where they are rounded to int8. Few, since a large one makes
 * the others coarse: with 64, real models lose twice as much. */
constexpr int rounded_together(bool affine) { return affine ? 32 : 16; }
inline int rounded_together(const Matrix& matrix) {
  return rounded_together(matrix.format == Format::Affine);
}

/* Rows of activations in the form that a kind of matrix takes; made once for all matrices of the
 * same format, bits and group that read the same rows. */
struct Prepared {
  int32_t rows;            /* M */
  int32_t columns;         /* K */
  bool int8;               /* values rounded to int8 */
  const float* x;          /* (M, K) exact values, contiguous */
  const int8_t* quantized; /* int8: (M, K) in the order in which the weights' words come apart */
  const float* scales;     /* int8: (M, K / rounded_together()) */
  const float* sums;       /* affine: (M, groups) sums of a group's exact values */
  const uint32_t* pairs = nullptr; /* (M, K / 2) values rounded to bfloat16, two by two, or null */
};

}  // namespace cowmlx
