#include "activations.h"

#include "mlx/backend/common/utils.h"

#include "weights.h"

namespace mx = mlx::core;

namespace cowmlx {

Activations::Activations(const mx::array& array)
    : data_(array.data<void>()),
      type_(scalar_of(array, "x")),
      direct_(type_ == Scalar::Float32 && array.flags().row_contiguous),
      columns_(array.shape(-1)),
      rows_(columns_ > 0 ? static_cast<int64_t>(array.size()) / columns_ : 0),
      step_(columns_ > 1 ? array.strides(-1) : 1),
      shape_(array.shape().begin(), array.shape().end() - 1),
      strides_(array.strides().begin(), array.strides().end() - 1) {}

void Activations::read(const Table& table, int64_t first, int count, float* out) const {
  const size_t size = type_ == Scalar::Float32 ? 4 : 2;
  for (int row = 0; row < count; row++, out += columns_) {
    int64_t left = first + row, offset = 0;
    for (int axis = static_cast<int>(shape_.size()) - 1; axis >= 0; axis--) {
      offset += left % shape_[axis] * strides_[axis];
      left /= shape_[axis];
    }
    const char* from = static_cast<const char*>(data_) + offset * static_cast<int64_t>(size);
    if (step_ == 1) {
      table.load(from, type_, columns_, out);
    } else {
      for (int column = 0; column < columns_; column++)
        table.load(from + column * step_ * static_cast<int64_t>(size), type_, 1, out + column);
    }
  }
}

}  // namespace cowmlx
