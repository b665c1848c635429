/* What a bundle without chat and grammar refuses: a status and a message a line. */
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>

static void tell(cow_mlx_status status) {
  printf("%s\t%s\n", cow_mlx_status_name(status), cow_mlx_error_message());
}

static void require(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  tell(status);
  exit(1);
}

int main(int argc, char** argv) {
  cow_mlx_model model;
  cow_mlx_context context;
  int32_t tokens[512];
  size_t count;
  if (argc != 2) return 2;
  require(cow_mlx_runtime_start(NULL));
  require(cow_mlx_model_load(argv[1], NULL, &model));
  require(cow_mlx_context_create(model, NULL, &context));
  require(
      cow_mlx_model_tokenize(model, "Once", COW_MLX_NUL, COW_MLX_ADD_SPECIAL, tokens, 512, &count));
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = 4;
  tell(cow_mlx_context_generate(context, tokens, count, &params, NULL, NULL, NULL));
  params.grammar = "[a-z]+";
  params.grammar_kind = COW_MLX_GRAMMAR_REGEX;
  tell(cow_mlx_context_generate(context, tokens, count, &params, NULL, NULL, NULL));
  const char* messages = "[{\"role\": \"user\", \"content\": \"Hello\"}]";
  tell(cow_mlx_model_chat_prompt(model, messages, COW_MLX_NUL, NULL, tokens, 512, &count));
  tell(cow_mlx_context_chat(context, messages, COW_MLX_NUL, NULL, NULL, NULL, NULL, NULL));
  return 0;
}
