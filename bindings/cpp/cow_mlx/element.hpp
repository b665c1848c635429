/* The types of elements, and numbers beside arrays. See cow_mlx.hpp. */
#ifndef COW_MLX_ELEMENT_HPP
#define COW_MLX_ELEMENT_HPP

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <locale>
#include <sstream>
#include <string>
#include <type_traits>

#include "base.hpp"
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

/* Of a value of exactly this type. */
template <typename T>
Dtype of(T) = delete;
constexpr Dtype of(bool) { return Dtype::boolean; }
constexpr Dtype of(std::uint8_t) { return Dtype::uint8; }
constexpr Dtype of(std::uint16_t) { return Dtype::uint16; }
constexpr Dtype of(std::uint32_t) { return Dtype::uint32; }
constexpr Dtype of(std::uint64_t) { return Dtype::uint64; }
constexpr Dtype of(std::int8_t) { return Dtype::int8; }
constexpr Dtype of(std::int16_t) { return Dtype::int16; }
constexpr Dtype of(std::int32_t) { return Dtype::int32; }
constexpr Dtype of(std::int64_t) { return Dtype::int64; }
constexpr Dtype of(Float16) { return Dtype::float16; }
constexpr Dtype of(BFloat16) { return Dtype::bfloat16; }
constexpr Dtype of(float) { return Dtype::float32; }
constexpr Dtype of(double) { return Dtype::float64; }
constexpr Dtype of(std::complex<float>) { return Dtype::complex64; }

}  // namespace detail

/** The dtype of elements of a C++ type. */
template <typename T>
inline constexpr Dtype dtype_of = detail::of(std::remove_cv_t<T>{});

namespace detail {

struct NamedDtype {
  std::int32_t code;
  const char* name;
};

#define COW_MLX_NAMED(name, value, bytes) {value, #name},
inline constexpr NamedDtype named_dtypes[] = {COW_MLX_DTYPES(COW_MLX_NAMED)};
#undef COW_MLX_NAMED

/* Such as "float32". */
inline std::string dtype_name(Dtype dtype) {
  for (const NamedDtype& each : named_dtypes) {
    if (each.code != static_cast<std::int32_t>(dtype)) continue;
    std::string name = each.name;
    for (char& c : name) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
    }
    return name;
  }
  throw Error(COW_MLX_EINVAL,
              "dtype is " + std::to_string(static_cast<std::int32_t>(dtype)) +
                  ", must be one of COW_MLX_DTYPES",
              "out_of_range");
}

inline Dtype dtype_of_name(const std::string& name) {
  for (const NamedDtype& each : named_dtypes) {
    const auto dtype = static_cast<Dtype>(each.code);
    if (name == dtype_name(dtype)) return dtype;
  }
  throw Error(COW_MLX_EUNSUPPORTED, "this header knows no dtype " + name, "unsupported");
}

inline bool is_float(Dtype dtype) {
  return dtype == Dtype::float16 || dtype == Dtype::bfloat16 || dtype == Dtype::float32 ||
         dtype == Dtype::float64 || dtype == Dtype::complex64;
}

/* A number as JSON has it, whatever the locale; what is not finite is a text. */
template <typename T>
std::string json_number(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else if constexpr (std::is_same_v<T, std::complex<float>>) {
    const std::string imaginary = json_number(value.imag());
    const char* sign = imaginary[0] == '-' ? "" : "+";
    return "\"" + json_number(value.real()) + sign + imaginary + "j\"";
  } else {
    if (std::isnan(value)) return "\"nan\"";
    if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
    std::ostringstream text;
    text.imbue(std::locale::classic());
    text.precision(std::numeric_limits<T>::max_digits10);
    text << value;
    return text.str();
  }
}

}  // namespace detail

/** A number beside arrays: it takes the dtype of the array that it meets, if it fits that. */
class Number {
 public:
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Number(T value)
      : json_(detail::json_number(value)),
        kind_(std::is_same_v<T, bool> ? 'b'
              : std::is_integral_v<T> ? 'i'
                                      : 'f') {}

  const std::string& json() const noexcept { return json_; }

  /** A bool is one; an integer is of the other dtype, or int32 beside bools; other numbers are of
   * the other dtype if that is one of floats, or else float32. */
  Dtype beside(Dtype other) const {
    if (kind_ == 'b') return Dtype::boolean;
    if (kind_ == 'i') return other == Dtype::boolean ? Dtype::int32 : other;
    return detail::is_float(other) ? other : Dtype::float32;
  }

 private:
  std::string json_;
  char kind_;
};

}  // namespace cowmlx

#endif /* COW_MLX_ELEMENT_HPP */
