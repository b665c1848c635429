/*
 * Talk with a model in the terminal: chat MODEL [SYSTEM PROMPT]
 * One line is one message; end with ^D.
 */
#include <cow_mlx.hpp>
#include <iostream>

/* Print an answer as it comes, and return it: the next turn needs it. */
static std::string answer(cowmlx::Context& context, const std::vector<cowmlx::Message>& messages) {
  std::string text;
  context.chat(messages, [&](const cowmlx::Event& event) {
    switch (event.kind) {
      case COW_MLX_EVENT_TEXT:
        text += event.text;
        std::cout << event.text << std::flush;
        break;
      case COW_MLX_EVENT_REASONING:
        std::cerr << event.text;
        break;
      case COW_MLX_EVENT_TOOL_CALL:
        std::cout << "[" << event.name << " " << event.text << "]";
        break;
      case COW_MLX_EVENT_END:
        std::cout << (event.finish == COW_MLX_FINISH_LENGTH ? " ...\n" : "\n");
        break;
    }
    return true;
  });
  return text;
}

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: " << argv[0] << " MODEL [SYSTEM PROMPT]\n";
    return 2;
  }
  try {
    cowmlx::Runtime runtime;
    cowmlx::Model model(argv[1]);
    cowmlx::Context context(model);
    std::vector<cowmlx::Message> messages;
    if (argc == 3) messages.push_back({"system", argv[2]});

    std::string line;
    while (std::cerr << "> ", std::getline(std::cin, line)) {
      if (line.empty()) continue;
      messages.push_back({"user", line});
      try {
        messages.push_back({"assistant", answer(context, messages)});
      } catch (const cowmlx::Error& error) {
        std::cerr << error.what() << "\n";
        messages.pop_back(); /* as if the line had not been said */
      }
    }
  } catch (const cowmlx::Error& error) {
    std::cerr << error.name() << ": " << error.what() << "\n";
    return 1;
  }
}
