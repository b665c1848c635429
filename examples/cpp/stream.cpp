/*
 * Stream what a model makes of a text, then again and stop half-way: stream MODEL TEXT
 */
#include <cow_mlx.hpp>
#include <iostream>
#include <thread>

/* What a window's Stop button does: a call from another thread. */
static void press_stop(const cowmlx::Context& context) {
  std::thread([&] { context.cancel(); }).join();
}

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: " << argv[0] << " MODEL TEXT\n";
    return 2;
  }
  try {
    cowmlx::Runtime runtime;
    cowmlx::Model model(argv[1]);
    cowmlx::Context context(model);
    cowmlx::Tokens prompt = model.tokenize(argv[2], COW_MLX_ADD_SPECIAL);

    for (const cowmlx::Piece& piece : context.generate(prompt)) {
      std::cout << piece.text << std::flush;
    }
    std::cout << "\n[" << context.stats().generated_tokens << " tokens]\n";

    std::size_t length = 0;
    auto pieces = context.generate(prompt);
    for (const cowmlx::Piece& piece : pieces) {
      std::cout << piece.text << std::flush;
      length += piece.text.size();
      if (length >= 20) press_stop(context);
    }
    std::cout << (pieces.finish() == COW_MLX_FINISH_CANCELED ? "\n[canceled]\n" : "\n[ended]\n");
  } catch (const cowmlx::Error& error) {
    std::cerr << error.name() << ": " << error.what() << "\n";
    return 1;
  }
}
