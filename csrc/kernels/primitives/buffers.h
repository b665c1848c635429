/* Buffers that an operation writes to: the input's own, if nobody else holds it, or a copy. */
#pragma once

#include <vector>

#include "mlx/array.h"

namespace cowmlx {

/* An evaluated array whose lines, along its last axis, are copied by a task. Holds no reference. */
class Lines {
 public:
  explicit Lines(const mlx::core::array& array);

  int64_t count() const { return count_; }
  int64_t bytes() const { return width_ * static_cast<int64_t>(item_); } /* of a line */

  /* Copy lines [begin, end) to memory without gaps. */
  void copy(int64_t begin, int64_t end, char* to) const;

 private:
  void copy_line(int64_t index, char* to) const;

  const char* data_;
  mlx::core::Shape shape_;
  mlx::core::Strides strides_;
  size_t item_;
  bool contiguous_;
  int64_t count_, width_;
};

/* A buffer that has to be copied before it is written. */
struct Copy {
  Lines from;
  char* to;

  void run() const; /* on all threads */
};

/* Let `out` have the buffer of `in`, which has its shape and type, or one of its own and a copy to
 * make. `in` is seen to be nobody else's where one output alone has it among its inputs. */
void take_over(const mlx::core::array& in, mlx::core::array& out, std::vector<Copy>& copies);

}  // namespace cowmlx
