/* Weight matrices among the inputs of a primitive, and those that layers hold. */
#pragma once

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "mlx/array.h"

#include "matrix.h"

namespace mx = mlx::core;

namespace cowmlx {

[[noreturn]] inline void refuse(const std::string& why) { throw std::invalid_argument(why); }

/* "(2, 3)" */
std::string shape_text(const mx::array& array);

using Arrays = std::vector<mx::array>;

/* The type of an array of floating-point numbers (or of fp formats' scales, uint8).
 * Throws std::invalid_argument, which names the array, for any other. */
Scalar scalar_of(const mx::array& array, const std::string& name);

/* An array as kernels read it, row after row; evaluated ones that are so already stay what they
 * are. */
mx::array plain(const mx::array& array, mx::Stream stream);

/* What of a matrix is no array. Its arrays are inputs that follow each other: the weight, the
 * scales of quantized formats, the biases of affine ones, then (N,) numbers added to products. */
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
Layout add_matrix(Arrays& inputs, const mx::array& weight, const std::optional<mx::array>& scales,
                  const std::optional<mx::array>& biases, const std::optional<mx::array>& bias,
                  int rows, const std::string& mode, int bits, int group, mx::Stream stream);

/* A matrix of blocks (matrix.h) that keeps its arrays alive. */
class HeldMatrix {
 public:
  /* As add_matrix() (weights.h), which throws for what does not fit; the arrays are evaluated. */
  HeldMatrix(const mx::array& weight, const std::optional<mx::array>& scales,
             const std::optional<mx::array>& biases, const std::optional<mx::array>& bias, int rows,
             const std::string& mode, int bits, int group);

  /* Rows [from, from + rows) over the same arrays; throws std::invalid_argument unless `from`
   * begins a block. */
  HeldMatrix part(int from, int rows) const;

  /* This matrix with up down added to it, of float32, and its rows multiplied with `rescale` (N,)
   * before, where that is given; throws std::invalid_argument unless they fit. */
  HeldMatrix with_low(const HeldMatrix& down, const HeldMatrix& up,
                      const std::optional<mx::array>& rescale) const;

  const Matrix& matrix() const { return matrix_; }

 private:
  Matrix matrix_{};
  Arrays held_;
  std::shared_ptr<const LowRank> low_; /* whose arrays are held, too */
};

}  // namespace cowmlx
