#include <cow_mlx.hpp>
#include <future>
#include <iostream>
#include <thread>

int main() {
  cowmlx::Runtime runtime;
  cowmlx::Model model("models/calf");
  cowmlx::Context context(model);
  cowmlx::Tokens tokens = model.tokenize("Once upon a time", COW_MLX_ADD_SPECIAL);
  {
    /* BLOCK */
  }
}
