/* Conversations. See cow_mlx.hpp. */
#ifndef COW_MLX_CHAT_HPP
#define COW_MLX_CHAT_HPP

#include <string>
#include <vector>

#include "json.hpp"

namespace cowmlx {

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

#endif /* COW_MLX_CHAT_HPP */
