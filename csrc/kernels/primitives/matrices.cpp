#include "matrices.h"

#include <stdexcept>

#include "dispatch.h"
#include "mlx/transforms.h"

namespace mx = mlx::core;

namespace cowmlx {
namespace {

size_t size_of(Scalar type) { return type == Scalar::Float32 ? 4 : type == Scalar::UInt8 ? 1 : 2; }

const void* behind(const void* base, size_t bytes) {
  return base ? static_cast<const char*>(base) + bytes : nullptr;
}

}  // namespace

HeldMatrix::HeldMatrix(const mx::array& weight, const std::optional<mx::array>& scales,
                       const std::optional<mx::array>& biases, const std::optional<mx::array>& bias,
                       int rows, const std::string& mode, int bits, int group) {
  const Layout layout = add_matrix(held_, weight, scales, biases, bias, rows, mode, bits, group,
                                   stream_of(mx::StreamOrDevice{}));
  mx::eval(held_);
  matrix_ = layout.matrix(held_, 0);
}

HeldMatrix HeldMatrix::part(int from, int rows) const {
  if (from < 0 || rows < 1 || from % LANES != 0 || from + rows > matrix_.rows)
    throw std::invalid_argument("rows " + std::to_string(from) + " to " +
                                std::to_string(from + rows) + " are no blocks of a matrix of " +
                                std::to_string(matrix_.rows));
  HeldMatrix other(*this);
  Matrix& m = other.matrix_;
  m.rows = rows;
  m.weight = behind(m.weight, static_cast<size_t>(from) * m.columns * m.bits / 8);
  if (m.group) {
    const size_t scales = static_cast<size_t>(from) * (m.columns / m.group) * size_of(m.scale_type);
    m.scales = behind(m.scales, scales);
    m.biases = behind(m.biases, scales);
  }
  if (m.bias) m.bias += from;
  return other;
}

}  // namespace cowmlx
