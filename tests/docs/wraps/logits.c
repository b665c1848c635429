#include <cow_mlx.h>
#include <math.h>
#include <stdio.h>

/* BLOCK */

int main(void) {
  cow_mlx_model model;
  cow_mlx_context context;
  int32_t tokens[64], held[64];
  size_t count, all;
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = 8;
  params.logits_fn = even_tokens;
  if (cow_mlx_runtime_start(NULL) || cow_mlx_model_load("models/calf", NULL, &model) ||
      cow_mlx_context_create(model, NULL, &context) ||
      cow_mlx_model_tokenize(model, "Once upon a time", COW_MLX_NUL, 0, tokens, 64, &count) ||
      cow_mlx_context_generate(context, tokens, count, &params, NULL, NULL, NULL) ||
      cow_mlx_context_tokens(context, held, 64, &all)) {
    return 1;
  }
  for (size_t i = count; i < all; i++) {
    if (held[i] % 2) return 1;
  }
  return all <= count;
}
