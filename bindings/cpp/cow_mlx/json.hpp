/* Texts of JSON. See cow_mlx.hpp. */
#ifndef COW_MLX_JSON_HPP
#define COW_MLX_JSON_HPP

#include <string>
#include <string_view>

namespace cowmlx {

namespace detail {

inline void append_json_string(std::string& json, std::string_view text) {
  static const char digits[] = "0123456789abcdef";
  json += '"';
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || byte < 0x20) {
      json.append("\\u00").append(1, digits[byte >> 4]).append(1, digits[byte & 15]);
    } else {
      json += c;
    }
  }
  json += '"';
}

}  // namespace detail

}  // namespace cowmlx

#endif /* COW_MLX_JSON_HPP */
