/* Scratch by the piece: the same code that takes the pieces counts them first. */
#pragma once

#include <cstddef>

namespace cowmlx {

class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<char*>(base)) {}

  template <class T>
  T* take(size_t count) {
    char* piece = base_ ? base_ + used_ : nullptr;
    used_ += (count * sizeof(T) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return reinterpret_cast<T*>(piece);
  }

  /* Bytes taken so far. */
  size_t used() const { return used_; }

  static constexpr size_t ALIGNMENT = 64; /* a cache line, and the widest vector */

 private:
  char* base_;
  size_t used_ = 0;
};

}  // namespace cowmlx
