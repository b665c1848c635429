#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(cow_mlx_status status) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

static bool print_text(const char* text, size_t length, void* user_data) {
  (void)user_data;
  return fwrite(text, 1, length, stdout) == length;
}

int main(void) {
  cow_mlx_model model;
  cow_mlx_context context;
  int32_t tokens[4096];
  size_t count;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_model_load("models/calf", NULL, &model));
  check(cow_mlx_context_create(model, NULL, &context));
  check(cow_mlx_model_tokenize(model, "Once upon a time", COW_MLX_NUL, COW_MLX_ADD_SPECIAL, tokens,
                               4096, &count));
  (void)print_text;
  {
    /* BLOCK */
  }
  check(cow_mlx_runtime_stop());
}
