/* The types of elements. See cow_mlx.hpp. */
#ifndef COW_MLX_ELEMENT_HPP
#define COW_MLX_ELEMENT_HPP

#include <complex>
#include <cstdint>
#include <type_traits>

#include "cow_mlx.h"

namespace cowmlx {

/** The type of an array's elements. */
enum class Dtype : std::int32_t {
  boolean = COW_MLX_BOOL,
  uint8 = COW_MLX_UINT8,
  uint16 = COW_MLX_UINT16,
  uint32 = COW_MLX_UINT32,
  uint64 = COW_MLX_UINT64,
  int8 = COW_MLX_INT8,
  int16 = COW_MLX_INT16,
  int32 = COW_MLX_INT32,
  int64 = COW_MLX_INT64,
  float16 = COW_MLX_FLOAT16,
  bfloat16 = COW_MLX_BFLOAT16,
  float32 = COW_MLX_FLOAT32,
  float64 = COW_MLX_FLOAT64,
  complex64 = COW_MLX_COMPLEX64
};

/** A 16-bit float as its bits. */
struct Float16 {
  std::uint16_t bits;
};

/** The upper half of a 32-bit float. */
struct BFloat16 {
  std::uint16_t bits;
};

namespace detail {

template <typename T>
struct DtypeOf;
template <>
struct DtypeOf<bool> {
  static constexpr Dtype value = Dtype::boolean;
};
template <>
struct DtypeOf<std::uint8_t> {
  static constexpr Dtype value = Dtype::uint8;
};
template <>
struct DtypeOf<std::uint16_t> {
  static constexpr Dtype value = Dtype::uint16;
};
template <>
struct DtypeOf<std::uint32_t> {
  static constexpr Dtype value = Dtype::uint32;
};
template <>
struct DtypeOf<std::uint64_t> {
  static constexpr Dtype value = Dtype::uint64;
};
template <>
struct DtypeOf<std::int8_t> {
  static constexpr Dtype value = Dtype::int8;
};
template <>
struct DtypeOf<std::int16_t> {
  static constexpr Dtype value = Dtype::int16;
};
template <>
struct DtypeOf<std::int32_t> {
  static constexpr Dtype value = Dtype::int32;
};
template <>
struct DtypeOf<std::int64_t> {
  static constexpr Dtype value = Dtype::int64;
};
template <>
struct DtypeOf<Float16> {
  static constexpr Dtype value = Dtype::float16;
};
template <>
struct DtypeOf<BFloat16> {
  static constexpr Dtype value = Dtype::bfloat16;
};
template <>
struct DtypeOf<float> {
  static constexpr Dtype value = Dtype::float32;
};
template <>
struct DtypeOf<double> {
  static constexpr Dtype value = Dtype::float64;
};
template <>
struct DtypeOf<std::complex<float>> {
  static constexpr Dtype value = Dtype::complex64;
};

}  // namespace detail

/** The dtype of elements of a C++ type. */
template <typename T>
inline constexpr Dtype dtype_of = detail::DtypeOf<std::remove_cv_t<T>>::value;

}  // namespace cowmlx

#endif /* COW_MLX_ELEMENT_HPP */
