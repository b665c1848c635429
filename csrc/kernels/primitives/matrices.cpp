#include "matrices.h"

#include <stdexcept>

#include "dispatch.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

namespace mx = mlx::core;

namespace cowmlx {
namespace {

size_t size_of(Scalar type) { return type == Scalar::Float32 ? 4 : type == Scalar::UInt8 ? 1 : 2; }

const void* behind(const void* base, size_t bytes) {
  return base ? static_cast<const char*>(base) + bytes : nullptr;
}

Matrix rows_of(Matrix m, int from, int rows) {
  m.rows = rows;
  m.weight = behind(m.weight, static_cast<size_t>(from) * m.columns * m.bits / 8);
  if (m.group) {
    const size_t scales = static_cast<size_t>(from) * (m.columns / m.group) * size_of(m.scale_type);
    m.scales = behind(m.scales, scales);
    m.biases = behind(m.biases, scales);
  }
  if (m.bias) m.bias += from;
  return m;
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
  m = rows_of(m, from, rows);
  if (low_) {
    const float* rescale = low_->rescale ? low_->rescale + from : nullptr;
    other.low_ =
        std::make_shared<LowRank>(LowRank{low_->down, rows_of(low_->up, from, rows), rescale});
    m.low = other.low_.get();
  }
  return other;
}

HeldMatrix HeldMatrix::with_low(const HeldMatrix& down, const HeldMatrix& up,
                                const std::optional<mx::array>& rescale) const {
  const Matrix &a = down.matrix_, &b = up.matrix_;
  if (a.columns != matrix_.columns || b.rows != matrix_.rows || b.columns != a.rows ||
      a.format != Format::Float32 || b.format != Format::Float32 || a.bias || b.bias)
    throw std::invalid_argument("a low-rank part is float32, (R, " +
                                std::to_string(matrix_.columns) + ") and (" +
                                std::to_string(matrix_.rows) + ", R), without biases");
  HeldMatrix other(*this);
  for (const HeldMatrix* part : {&down, &up})
    other.held_.insert(other.held_.end(), part->held_.begin(), part->held_.end());
  LowRank low{a, b};
  if (rescale) {
    if (rescale->dtype() != mx::float32 || rescale->ndim() != 1 ||
        rescale->shape(0) != matrix_.rows)
      throw std::invalid_argument("rows of a matrix are rescaled by " +
                                  std::to_string(matrix_.rows) + " float32");
    mx::array numbers = mx::contiguous(*rescale, false, stream_of(mx::StreamOrDevice{}));
    mx::eval(numbers);
    other.held_.push_back(numbers);
    low.rescale = numbers.data<float>();
    low.up.bias = matrix_.bias; /* which is added behind */
    other.matrix_.bias = nullptr;
  }
  other.low_ = std::make_shared<LowRank>(low);
  other.matrix_.low = other.low_.get();
  return other;
}

}  // namespace cowmlx
