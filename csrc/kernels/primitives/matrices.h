/* A matrix of blocks (matrix.h) that keeps its arrays alive, whoever else lets them go. */
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "matrix.h"
#include "weights.h"

namespace cowmlx {

class HeldMatrix {
 public:
  /* As add_matrix() (weights.h), which throws for what does not fit; the arrays are evaluated. */
  HeldMatrix(const mlx::core::array& weight, const std::optional<mlx::core::array>& scales,
             const std::optional<mlx::core::array>& biases,
             const std::optional<mlx::core::array>& bias, int rows, const std::string& mode,
             int bits, int group);

  /* Rows [from, from + rows) over the same arrays; throws std::invalid_argument unless `from`
   * begins a block. */
  HeldMatrix part(int from, int rows) const;

  /* This matrix with up down added to it, of float32, and its rows multiplied with `rescale` (N,)
   * before, where that is given; throws std::invalid_argument unless they fit. */
  HeldMatrix with_low(const HeldMatrix& down, const HeldMatrix& up,
                      const std::optional<mlx::core::array>& rescale) const;

  const Matrix& matrix() const { return matrix_; }

 private:
  Matrix matrix_{};
  Arrays held_;
  std::shared_ptr<const LowRank> low_; /* whose arrays are held, too */
};

}  // namespace cowmlx
