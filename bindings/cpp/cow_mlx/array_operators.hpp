/* Operators between arrays, and with numbers. See cow_mlx.hpp. */
#ifndef COW_MLX_ARRAY_OPERATORS_HPP
#define COW_MLX_ARRAY_OPERATORS_HPP

#include <utility>
#include <vector>

#include "array.hpp"
#include "attributes.hpp"
#include "element.hpp"

namespace cowmlx {

namespace detail {

inline Array applied(const char* operation, const std::vector<const Array*>& inputs) {
  return std::move(Array::apply(operation, inputs)[0]);
}

/* A number as an array beside another, whose dtype it takes if it fits. */
inline Array beside(const Number& number, const Array& other) {
  Attributes attributes;
  attributes.set("shape", Dims()).set("vals", number).set("dtype", number.beside(other.dtype()));
  return std::move(Array::apply("full", {}, attributes.json())[0]);
}

inline Array applied(const char* operation, const Array& a, const Array& b) {
  return applied(operation, {&a, &b});
}
inline Array applied(const char* operation, const Array& a, const Number& b) {
  return applied(operation, a, beside(b, a));
}
inline Array applied(const char* operation, const Number& a, const Array& b) {
  return applied(operation, beside(a, b), b);
}

}  // namespace detail

/* Each applies the operation of the table that it is called after, element by element: dtypes meet
 * as the table of promotion says, shapes are broadcast, and values are computed when they are
 * needed. */
#define COW_MLX_OPERATOR(sign, operation)                                     \
  inline Array operator sign(const Array& a, const Array& b) {                \
    return detail::applied(operation, a, b);                                  \
  }                                                                           \
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>> \
  Array operator sign(const Array& a, T b) {                                  \
    return detail::applied(operation, a, Number(b));                          \
  }                                                                           \
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>> \
  Array operator sign(T a, const Array& b) {                                  \
    return detail::applied(operation, Number(a), b);                          \
  }

COW_MLX_OPERATOR(+, "add")
COW_MLX_OPERATOR(-, "subtract")
COW_MLX_OPERATOR(*, "multiply")
COW_MLX_OPERATOR(/, "divide")
COW_MLX_OPERATOR(<, "less")
COW_MLX_OPERATOR(<=, "less_equal")
COW_MLX_OPERATOR(>, "greater")
COW_MLX_OPERATOR(>=, "greater_equal")
#undef COW_MLX_OPERATOR

inline Array operator-(const Array& a) { return detail::applied("negative", {&a}); }

}  // namespace cowmlx

#endif /* COW_MLX_ARRAY_OPERATORS_HPP */
