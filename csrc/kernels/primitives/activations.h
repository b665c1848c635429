/* Rows of activations, of whatever type and strides, as float32. */
#pragma once

#include <vector>

#include "mlx/array.h"

#include "table.h"

namespace cowmlx {

/* The rows of an evaluated array (…, K), in order. Holds no reference: mlx keeps the inputs of an
 * operation until it is done. */
class Activations {
 public:
  explicit Activations(const mlx::core::array& array);

  int64_t rows() const { return rows_; }
  int columns() const { return columns_; }

  /* The rows lie beside each other in float32: nothing is copied. */
  bool direct() const { return direct_; }
  const float* data() const { return static_cast<const float*>(data_); }

  /* Write `count` rows from `first` on to `out`, without gaps. */
  void read(const Table& table, int64_t first, int count, float* out) const;

 private:
  const void* data_;
  Scalar type_;
  bool direct_;
  int columns_;
  int64_t rows_, step_; /* step: between numbers of a row */
  mlx::core::Shape shape_;
  mlx::core::Strides strides_; /* of all axes but the last */
};

}  // namespace cowmlx
