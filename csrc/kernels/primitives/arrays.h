/* Arrays as tasks read and write them: rows of inputs as float32, lines that are copied, and
 * outputs in the buffers of inputs. */
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "mlx/array.h"

#include "table.h"
#include "weights.h"

namespace cowmlx {

/* The rows of an evaluated array (…, K), in order. Holds no reference: mlx keeps the inputs of an
 * operation until it is done. */
class Activations {
 public:
  explicit Activations(const mx::array& array);

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
  mx::Shape shape_;
  mx::Strides strides_; /* of all axes but the last */
};

/* An evaluated array whose lines, along its last axis, are copied by a task. Holds no reference. */
class Lines {
 public:
  explicit Lines(const mx::array& array);

  int64_t count() const { return count_; }
  int64_t bytes() const { return width_ * static_cast<int64_t>(item_); } /* of a line */

  /* Copy lines [begin, end) to memory without gaps. */
  void copy(int64_t begin, int64_t end, char* to) const;

 private:
  void copy_line(int64_t index, char* to) const;

  const char* data_;
  mx::Shape shape_;
  mx::Strides strides_;
  size_t item_;
  bool contiguous_;
  int64_t count_, width_;
};

/* The elements of an evaluated row-major array of integers. Holds no reference. */
class Integers {
 public:
  explicit Integers(const mx::array& array)
      : data_(array.data<char>()), type_(array.dtype().val()) {}

  /* Call a function with a pointer to the elements, whose type depends on the array's. */
  template <class F>
  auto visit(F&& function) const {
    const auto as = [&]<class T>(T) { return function(reinterpret_cast<const T*>(data_)); };
    switch (type_) {
      case mx::Dtype::Val::int8:
        return as(int8_t{});
      case mx::Dtype::Val::int16:
        return as(int16_t{});
      case mx::Dtype::Val::int32:
        return as(int32_t{});
      case mx::Dtype::Val::int64:
        return as(int64_t{});
      case mx::Dtype::Val::uint8:
        return as(uint8_t{});
      case mx::Dtype::Val::uint16:
        return as(uint16_t{});
      case mx::Dtype::Val::uint32:
        return as(uint32_t{});
      default:
        return as(uint64_t{});
    }
  }

  /* An element, or int64_t's greatest number where the element is greater. */
  int64_t at(int64_t place) const {
    return visit([&]<class T>(const T* values) -> int64_t {
      if constexpr (std::is_same_v<T, uint64_t>)
        return static_cast<int64_t>(std::min<uint64_t>(values[place], INT64_MAX));
      else
        return values[place];
    });
  }

  /* An element, clamped to 0 … count - 1. */
  int64_t clamped(int64_t at, int64_t count) const {
    return visit([&]<class T>(const T* values) -> int64_t {
      if (values[at] < T{1}) return 0;
      return static_cast<int64_t>(
          std::min(static_cast<uint64_t>(values[at]), static_cast<uint64_t>(count - 1)));
    });
  }

 private:
  const char* data_;
  mx::Dtype::Val type_;
};

/* Owns a buffer, for the arrays that lie in it and for the tasks that write to it. */
using Memory = std::shared_ptr<const mx::array::Data>;

/* A buffer that has to be copied before it is written. */
struct Copy {
  Lines from;
  char* to;

  void run() const; /* on all threads */
};

/* Lets an operation's outputs write into the buffers of its inputs where nothing else holds these,
 * also while tasks of earlier operations run.
 *
 * mlx holds the buffers of all but one of an operation's outputs until its task is done, so the
 * next operation would count them as shared, and copy. Therefore the outputs stop being siblings
 * once their operation is evaluated, and this keeps their memory instead. An operation that reads
 * such an output on another stream belongs into a later eval(): mlx has no fence between them. */
class Takeover {
 public:
  /* `inputs`: what eval_cpu was given. The output that has them stays as it is. */
  Takeover(const Arrays& inputs, Arrays& outputs);

  /* Where the operation has failed, its outputs may be computed by another try: they have their
   * inputs again, and these their buffers. */
  ~Takeover();
  Takeover(const Takeover&) = delete;
  Takeover& operator=(const Takeover&) = delete;

  /* Once all outputs have data and nothing fails any more: they are evaluated. */
  void finish();

  /* Let output `out` have the buffer of input `in`, which has its shape and type, or a new one
   * and a copy to make. */
  void buffer(size_t in, size_t out);

  /* Let output `out` have a new buffer. */
  void make(size_t out);

  /* What is to be copied before the buffers are written to. */
  std::vector<Copy> copies() { return std::move(copies_); }

  /* What the task keeps while it runs. */
  std::vector<Memory> memory() { return std::move(memory_); }

 private:
  Arrays* inputs_ = nullptr;
  Arrays& outputs_;
  bool finished_ = false;
  std::vector<std::pair<size_t, Memory>> taken_; /* inputs without their buffers, and these */
  std::vector<Copy> copies_;
  std::vector<Memory> memory_;
};

}  // namespace cowmlx
