/* Buffers that an operation writes to: the input's own, if nobody else holds it, or a copy. */
#pragma once

#include <memory>
#include <utility>
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

/* Owns a buffer, for the arrays that lie in it and for the tasks that write to it. */
using Memory = std::shared_ptr<const mlx::core::array::Data>;

/* A buffer that has to be copied before it is written. */
struct Copy {
  Lines from;
  char* to;

  void run() const; /* on all threads */
};

/* Lets an operation's outputs write into the buffers of its inputs, as far as nobody else holds
 * these, also while tasks of earlier operations run.
 *
 * mlx holds the buffers of an operation's outputs, of all but one, until its task is done. By mlx's
 * own measure the next operation would find them somebody else's, and copy. So the outputs are no
 * siblings any more once their operation is evaluated, and this keeps their memory instead. What
 * reads such an output on another stream is given to a later eval(), not to the same: no fence of
 * mlx stands between them. */
class Takeover {
 public:
  /* `inputs`: what eval_cpu was given. The output that has them stays as it is. */
  Takeover(const std::vector<mlx::core::array>& inputs, std::vector<mlx::core::array>& outputs);

  /* Once all outputs have data and nothing fails any more: they are evaluated. */
  void finish();

  /* Let output `out` have the buffer of input `in`, which has its shape and type, or one of its own
   * and a copy to make. */
  void buffer(size_t in, size_t out);

  /* What is to be copied before the buffers are written to. */
  std::vector<Copy> copies() { return std::move(copies_); }

  /* What the task keeps while it runs. */
  std::vector<Memory> memory() { return std::move(memory_); }

 private:
  std::vector<mlx::core::array>* inputs_ = nullptr;
  std::vector<mlx::core::array>& outputs_;
  std::vector<Copy> copies_;
  std::vector<Memory> memory_;
};

}  // namespace cowmlx
