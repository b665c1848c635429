/*
 * A model on several machines answers a question: machines SECRET_FILE MODEL HOST:PORT [HOST:PORT
 * ...] On each of the others runs: python -m cowmlx worker --listen HOST:PORT --secret-file FILE
 * ... Where a machine is lost, the model is loaded once more, and the answer goes on.
 */
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_TOKENS = 4096 };

static void check(cow_mlx_status status) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

static bool progress(float fraction, const char* stage, void* user_data) {
  (void)user_data;
  fprintf(stderr, "%s %3.0f %%\n", stage, 100 * (double)fraction);
  return true;
}

/* Answer behind these tokens, and note those that were generated; ELOST if a machine is lost. */
static cow_mlx_status answer(cow_mlx_model model, int32_t* tokens, size_t* count) {
  cow_mlx_context context;
  check(cow_mlx_context_create(model, NULL, &context));
  cow_mlx_status status = cow_mlx_context_begin(context, tokens, *count, NULL);
  while (status == COW_MLX_OK && *count < MAX_TOKENS) {
    char text[256];
    size_t length;
    cow_mlx_piece piece = {.struct_size = sizeof piece};
    status = cow_mlx_context_next(context, text, sizeof text, &length, &piece);
    if (status < 0) break;
    fwrite(text, 1, length, stdout);
    if (status == COW_MLX_OK) tokens[(*count)++] = piece.token;
  }
  if (status < 0) /* before another call clears the message */
    fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  check(cow_mlx_context_free(context));
  return status;
}

int main(int argc, char** argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: machines SECRET_FILE MODEL HOST:PORT [HOST:PORT ...]\n");
    return 2;
  }
  cow_mlx_model_params params;
  cow_mlx_model_params_init(&params, sizeof params);
  params.secret_path = argv[1];
  params.workers = (const char* const*)argv + 3;
  params.worker_count = (size_t)argc - 3;
  params.progress = progress;

  static int32_t tokens[MAX_TOKENS];
  size_t count = 0;
  check(cow_mlx_runtime_start(NULL));
  cow_mlx_status status = COW_MLX_ELOST;
  for (int tries = 0; tries < 2 && status == COW_MLX_ELOST; tries++) {
    cow_mlx_model model;
    check(cow_mlx_model_load(argv[2], &params, &model));
    if (count == 0) {
      check(cow_mlx_model_chat_prompt(model,
                                      "[{\"role\": \"user\", \"content\": \"What is 3 + 4?\"}]",
                                      COW_MLX_NUL, NULL, tokens, MAX_TOKENS, &count));
    }
    status = answer(model, tokens, &count);
    check(cow_mlx_model_free(model));
  }
  if (status < 0) return 1; /* answer() has said why */
  printf("\n");
  return cow_mlx_runtime_stop() == COW_MLX_OK ? 0 : 1;
}
