/* A matrix of blocks (matrix.h) that keeps its arrays alive, whoever else lets them go. */
#pragma once

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

  const Matrix& matrix() const { return matrix_; }

 private:
  Matrix matrix_{};
  Arrays held_;
};

}  // namespace cowmlx
