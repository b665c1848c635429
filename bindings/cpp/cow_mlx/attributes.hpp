/* Attributes of operations. See cow_mlx.hpp. */
#ifndef COW_MLX_ATTRIBUTES_HPP
#define COW_MLX_ATTRIBUTES_HPP

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "element.hpp"
#include "json.hpp"

namespace cowmlx {

namespace detail {

template <typename Each, typename Json>
std::string json_list(const Each& values, Json json) {
  std::string text = "[";
  for (const auto& value : values) {
    if (text.size() > 1) text += ", ";
    text += json(value);
  }
  return text += "]";
}

inline std::string json_text(std::string_view text) {
  std::string json;
  append_json_string(json, text);
  return json;
}

}  // namespace detail

/** A dimension: a number, or a name that has one value in a run; expressions such as "2*n+1" too.
 */
class Dim {
 public:
  template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
  Dim(T size) : json_(std::to_string(size)) {}
  Dim(const char* name) : Dim(std::string_view(name)) {}
  Dim(const std::string& name) : Dim(std::string_view(name)) {}
  Dim(std::string_view name) : json_(detail::json_text(name)) {}

  const std::string& json() const noexcept { return json_; }

 private:
  std::string json_;
};

/** A shape of a program: the outermost dimension first. */
using Dims = std::vector<Dim>;

/** Integers, or where an attribute may be left out, {}: nothing. */
class IntList {
 public:
  IntList() = default;
  IntList(std::initializer_list<std::int64_t> values) : values_(values) {}
  IntList(std::vector<std::int64_t> values) : values_(std::move(values)) {}

  const std::optional<std::vector<std::int64_t>>& values() const noexcept { return values_; }

 private:
  std::optional<std::vector<std::int64_t>> values_;
};

/** An integer or integers: an axis or axes, one size or one for each dimension; or {}: nothing. */
class Ints {
 public:
  Ints() = default;
  template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
  Ints(T value) : one_(static_cast<std::int64_t>(value)) {}
  Ints(std::initializer_list<std::int64_t> values) : values_(values) {}
  Ints(std::vector<std::int64_t> values) : values_(std::move(values)) {}

  const std::optional<std::int64_t>& one() const noexcept { return one_; }
  const std::optional<std::vector<std::int64_t>>& values() const noexcept { return values_; }

 private:
  std::optional<std::int64_t> one_;
  std::optional<std::vector<std::int64_t>> values_;
};

namespace detail {

/* How many parts a split makes: so many, or those between places. */
inline std::size_t parts(const Ints& given) {
  if (given.one()) return *given.one() < 0 ? 0 : static_cast<std::size_t>(*given.one());
  return given.values() ? given.values()->size() + 1 : 1;
}

}  // namespace detail

/** What is before and after each dimension, or one number for both sides of all. */
class Pairs {
 public:
  template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
  Pairs(T value) : one_(static_cast<std::int64_t>(value)) {}
  Pairs(std::initializer_list<std::pair<std::int64_t, std::int64_t>> pairs) : pairs_(pairs) {}
  Pairs(std::vector<std::pair<std::int64_t, std::int64_t>> pairs) : pairs_(std::move(pairs)) {}

 private:
  friend class Attributes;

  std::vector<std::pair<std::int64_t, std::int64_t>> pairs_;
  std::optional<std::int64_t> one_;
};

/** A JSON object of attributes; which values each takes is in the table of operations. */
class Attributes {
 public:
  template <typename T>
  Attributes& set(const char* name, const T& value) {
    json_ += json_.empty() ? "{" : ", ";
    detail::append_json_string(json_, name);
    json_ += ": " + json(value);
    return *this;
  }

  /** Set what has a value. */
  template <typename T>
  Attributes& set_given(const char* name, const std::optional<T>& value) {
    return value ? set(name, *value) : *this;
  }
  Attributes& set_given(const char* name, const IntList& value) {
    return set_given(name, value.values());
  }
  Attributes& set_given(const char* name, const Ints& value) {
    return value.one() ? set(name, *value.one()) : set_given(name, value.values());
  }

  std::string json() const { return json_.empty() ? "{}" : json_ + "}"; }

 private:
  template <typename T>
  static std::string json(const T& value) {
    if constexpr (std::is_same_v<T, Dtype>) {
      return detail::json_text(detail::dtype_name(value));
    } else if constexpr (std::is_arithmetic_v<T>) {
      return detail::json_number(value);
    } else if constexpr (std::is_enum_v<T>) {
      return detail::json_text(name_of(value)); /* by argument-dependent lookup */
    } else if constexpr (std::is_convertible_v<T, std::string_view>) {
      return detail::json_text(value);
    } else {
      return list(value);
    }
  }
  template <typename T>
  static std::string json(const std::optional<T>& value) {
    return value ? json(*value) : "null";
  }

  static std::string list(const Number& value) { return value.json(); }
  static std::string list(const std::vector<std::int64_t>& values) {
    return detail::json_list(values, [](std::int64_t each) { return std::to_string(each); });
  }
  static std::string list(const Ints& value) {
    return value.one() ? std::to_string(*value.one()) : json(value.values());
  }
  static std::string list(const IntList& value) { return json(value.values()); }
  static std::string list(const Dims& dims) {
    return detail::json_list(dims, [](const Dim& each) { return each.json(); });
  }
  static std::string list(const Pairs& value) {
    if (value.one_) return std::to_string(*value.one_);
    return detail::json_list(value.pairs_, [](const auto& pair) {
      return list(std::vector<std::int64_t>{pair.first, pair.second});
    });
  }

  std::string json_;
};

}  // namespace cowmlx

#endif /* COW_MLX_ATTRIBUTES_HPP */
