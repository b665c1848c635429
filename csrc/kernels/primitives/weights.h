/* Weight matrices among the inputs of a primitive. */
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mlx/array.h"

#include "matrix.h"

namespace cowmlx {

using Arrays = std::vector<mlx::core::array>;

/* The type of an array of floating-point numbers (or of fp formats' scales, uint8).
 * Throws std::invalid_argument, which names the array, for any other. */
Scalar scalar_of(const mlx::core::array& array, const std::string& name);

/* An array as kernels read it, row after row; evaluated ones that are so already stay what they
 * are. */
mlx::core::array plain(const mlx::core::array& array, mlx::core::Stream stream);

/* What of a matrix is no array. Its arrays are inputs that follow each other: the weight, the
 * scales of packed formats, the biases of affine ones, then (N,) numbers added to products. */
struct Layout {
  Format format;
  int bits, group, rows, columns;
  bool has_scales, has_biases, has_bias;
  Scalar scale_type;

  /* How many inputs the matrix takes. */
  int inputs() const { return 1 + has_scales + has_biases + has_bias; }

  /* The matrix whose weight is input `first`, once the inputs are evaluated. */
  Matrix matrix(const Arrays& inputs, size_t first) const;
};

/* Check the arrays of a matrix, whose weight is (blocks, words, 16) as pack() makes it, and put
 * them behind `inputs`. `mode` is "dense" or a mode of mlx's quantize(). Throws
 * std::invalid_argument with a sentence. */
Layout add_matrix(Arrays& inputs, const mlx::core::array& weight,
                  const std::optional<mlx::core::array>& scales,
                  const std::optional<mlx::core::array>& biases,
                  const std::optional<mlx::core::array>& bias, int rows, const std::string& mode,
                  int bits, int group, mlx::core::Stream stream);

}  // namespace cowmlx
