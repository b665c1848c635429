/* Arrays of numbers. See cow_mlx.hpp. */
#ifndef COW_MLX_ARRAY_HPP
#define COW_MLX_ARRAY_HPP

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base.hpp"
#include "element.hpp"

namespace cowmlx {

/** Sizes of the dimensions, the outermost first. */
using Shape = std::vector<std::int64_t>;

/** Elements in memory that something else owns. */
template <typename T>
class Span {
 public:
  Span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}

  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T* begin() const noexcept { return data_; }
  T* end() const noexcept { return data_ + size_; }
  T& operator[](std::size_t index) const noexcept { return data_[index]; }

 private:
  T* data_;
  std::size_t size_;
};

/** Numbers in up to eight dimensions: a value, which nothing changes. */
class Array {
 public:
  /** Copy the host's memory, in any layout. */
  explicit Array(const cow_mlx_tensor& from) : handle_(create(from)) {}

  /** Copy values in row-major order. */
  template <typename T>
  Array(Span<const T> values, const Shape& shape)
      : Array(tensor(values.data(), values.size(), shape, "array_create")) {}
  template <typename T>
  Array(const std::vector<T>& values, const Shape& shape)
      : Array(Span<const T>(values.data(), values.size()), shape) {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> is no memory of bools");
  }

  /** Copy values into one dimension. */
  template <typename T>
  explicit Array(const std::vector<T>& values)
      : Array(values, Shape{static_cast<std::int64_t>(values.size())}) {}

  cow_mlx_array handle() const noexcept { return handle_.get(); }

  Dtype dtype() const { return type().first; }
  Shape shape() const { return type().second; }

  /** The number of elements. */
  std::size_t size() const { return count(shape()); }

  /** Copy the elements into the host's memory, in any layout. */
  void read(const cow_mlx_tensor& to) const { detail::check(cow_mlx_array_read(handle(), &to)); }

  /** Copy the elements in row-major order: as many as there are, and of this type. */
  template <typename T>
  void read(Span<T> to) const {
    const Shape sides = shape();
    read(tensor(to.data(), to.size(), sides, "array_read"));
  }

  /** The elements in row-major order. */
  template <typename T>
  std::vector<T> values() const {
    static_assert(!std::is_same_v<T, bool>, "read() bools into an array of bool");
    std::vector<T> values(size());
    read(Span<T>(values.data(), values.size()));
    return values;
  }

  /** The elements where they are, as long as this object and the runtime live. */
  template <typename T>
  Span<const T> view() const {
    if (dtype() != dtype_of<T>) {
      throw Error(COW_MLX_EINVAL, "array_view: the array is of another dtype", "dtype_mismatch");
    }
    const void* data = nullptr;
    detail::check(cow_mlx_array_view(handle(), &data, nullptr));
    return {static_cast<const T*>(data), size()};
  }

  /** Wait until the elements are computed; false if a run has not brought them in time. */
  bool wait(std::uint32_t timeout_ms = UINT32_MAX) const {
    cow_mlx_status status = cow_mlx_array_wait(handle(), timeout_ms);
    if (status != COW_MLX_ETIMEDOUT) detail::check(status);
    return status == COW_MLX_OK;
  }

  /** Apply one operation; nullptr stands for an input that is left out. Values are computed when
   * they are needed. */
  static std::vector<Array> apply(const std::string& operation,
                                  const std::vector<const Array*>& inputs,
                                  const std::string& attributes_json = {}) {
    const char* name = detail::c_string(operation, "array_apply: operation");
    const char* attributes = detail::optional(attributes_json, "array_apply: attributes_json");
    std::vector<cow_mlx_array> given;
    for (const Array* input : inputs) {
      given.push_back(input != nullptr ? detail::open(input, "array_apply: inputs") : 0);
    }
    const auto handles = detail::fill<std::vector<cow_mlx_array>>(
        4, [&](cow_mlx_array* out, std::size_t size, std::size_t* length) {
          return cow_mlx_array_apply(name, given.data(), given.size(), attributes, out, size,
                                     length);
        });
    std::vector<Array> results;
    for (cow_mlx_array handle : handles) results.push_back(Array(handle));
    return results;
  }

  /** Copy a DLPack tensor, and call its deleter. */
  static Array from_dlpack(DLManagedTensorVersioned* managed) {
    cow_mlx_array array = 0;
    detail::check(cow_mlx_array_from_dlpack(managed, &array));
    return Array(array);
  }

  /** A DLPack tensor of the elements, which the caller frees by its deleter. */
  DLManagedTensorVersioned* to_dlpack() const {
    DLManagedTensorVersioned* managed = nullptr;
    detail::check(cow_mlx_array_to_dlpack(handle(), &managed));
    return managed;
  }

  /** Load arrays of a safetensors file, in the order of the names. */
  static std::vector<Array> load(const std::string& path, const std::vector<std::string>& names) {
    const std::vector<const char*> texts = c_strings(names, "arrays_load: names");
    std::vector<cow_mlx_array> handles(names.size());
    detail::check(cow_mlx_arrays_load(detail::c_string(path, "arrays_load: path"), texts.data(),
                                      texts.size(), handles.data()));
    std::vector<Array> arrays;
    for (cow_mlx_array handle : handles) arrays.push_back(Array(handle));
    return arrays;
  }

  /** Save arrays, each under its name, as a safetensors file. */
  static void save(const std::string& path, const std::vector<std::string>& names,
                   const std::vector<const Array*>& arrays) {
    if (names.size() != arrays.size()) {
      throw Error(COW_MLX_EINVAL, "arrays_save: there are not as many names as arrays", "missing");
    }
    const std::vector<const char*> texts = c_strings(names, "arrays_save: names");
    std::vector<cow_mlx_array> handles;
    for (const Array* array : arrays) {
      handles.push_back(detail::open(array, "arrays_save: arrays"));
    }
    detail::check(cow_mlx_arrays_save(detail::c_string(path, "arrays_save: path"), texts.data(),
                                      handles.data(), handles.size()));
  }

  /** What a safetensors file holds, as a JSON object. */
  static std::string info(const std::string& path) {
    const char* file = detail::c_string(path, "arrays_info: path");
    return detail::fill<std::string>(4096, [&](char* text, std::size_t size, std::size_t* length) {
      return cow_mlx_arrays_info(file, text, size, length);
    });
  }

 private:
  friend class Context;
  friend class Input;
  friend class Output;
  friend class Program;
  friend class Training;

  explicit Array(cow_mlx_array array) : handle_(array) {}

  static std::vector<const char*> c_strings(const std::vector<std::string>& texts,
                                            const char* name) {
    std::vector<const char*> all;
    for (const std::string& text : texts) all.push_back(detail::c_string(text, name));
    return all;
  }

  static cow_mlx_array create(const cow_mlx_tensor& from) {
    cow_mlx_array array = 0;
    detail::check(cow_mlx_array_create(&from, &array));
    return array;
  }

  static std::size_t count(const Shape& shape) {
    std::size_t count = 1;
    for (std::int64_t side : shape) count *= static_cast<std::size_t>(side);
    return count;
  }

  /* Of elements in row-major order, exactly as many as the shape has: C finds one that has more. */
  template <typename T>
  static cow_mlx_tensor tensor(T* data, std::size_t size, const Shape& shape, const char* call) {
    cow_mlx_tensor tensor = {};
    tensor.struct_size = sizeof tensor;
    tensor.data = const_cast<std::remove_cv_t<T>*>(data);
    tensor.bytes = size * sizeof(T);
    tensor.dtype = static_cast<std::int32_t>(dtype_of<T>);
    tensor.rank = static_cast<std::int32_t>(shape.size());
    tensor.shape = shape.data();
    if (count(shape) != size) {
      throw Error(COW_MLX_EINVAL,
                  std::string(call) + ": the shape has " + std::to_string(count(shape)) +
                      " elements, but there are " + std::to_string(size) + " values",
                  "shape_mismatch");
    }
    return tensor;
  }

  std::pair<Dtype, Shape> type() const {
    std::int32_t dtype = 0;
    std::int64_t sides[COW_MLX_MAX_RANK];
    std::size_t rank = 0;
    detail::check(cow_mlx_array_type(handle(), &dtype, sides, COW_MLX_MAX_RANK, &rank));
    return {static_cast<Dtype>(dtype), Shape(sides, sides + rank)};
  }

  detail::Handle<cow_mlx_array_free> handle_;
};

}  // namespace cowmlx

#endif /* COW_MLX_ARRAY_HPP */
