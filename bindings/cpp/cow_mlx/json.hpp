/* Texts and conversations as JSON. See cow_mlx.hpp. */
#ifndef COW_MLX_JSON_HPP
#define COW_MLX_JSON_HPP

#include <string>
#include <string_view>
#include <vector>

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

/** A message of a conversation. For tool calls and the like, write JSON. */
struct Message {
  std::string role; /**< "system", "user" or "assistant" */
  std::string content;
};

/** A conversation as JSON: what chat_prompt() and chat() take. */
inline std::string to_json(const std::vector<Message>& messages) {
  std::string json = "[";
  for (const Message& message : messages) {
    json += json.size() > 1 ? ", {\"role\": " : "{\"role\": ";
    detail::append_json_string(json, message.role);
    json += ", \"content\": ";
    detail::append_json_string(json, message.content);
    json += "}";
  }
  return json += "]";
}

}  // namespace cowmlx

#endif /* COW_MLX_JSON_HPP */
