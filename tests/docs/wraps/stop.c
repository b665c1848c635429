#include <cow_mlx.h>
#include <stdio.h>

/* BLOCK */

int main(void) {
  cow_mlx_model model;
  cow_mlx_context context;
  int32_t tokens[64];
  size_t count, left = 20;
  return cow_mlx_runtime_start(NULL) || cow_mlx_model_load("models/calf", NULL, &model) ||
         cow_mlx_context_create(model, NULL, &context) ||
         cow_mlx_model_tokenize(model, "Once upon a time", COW_MLX_NUL, 0, tokens, 64, &count) ||
         cow_mlx_context_generate(context, tokens, count, NULL, some, &left, NULL) !=
             COW_MLX_ECANCELED ||
         left != 0;
}
