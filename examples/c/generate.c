/*
 * Ask a model, and stream its answer: generate MODEL PROMPT
 */
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PROMPT_TOKENS = 4096 };

static bool print_text(const char* text, size_t length, void* user_data) {
  (void)user_data;
  fwrite(text, 1, length, stdout);
  fflush(stdout);
  return true;
}

/* Take a line of progress away; a pipe has none. */
static void clear_progress(void) {
  if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
}

static bool print_progress(float fraction, const char* stage, void* user_data) {
  (void)user_data;
  clear_progress();
  if (isatty(STDERR_FILENO) && fraction < 1)
    fprintf(stderr, "loading %s: %3.0f %%", stage, 100 * (double)fraction);
  return true;
}

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  clear_progress();
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

/* A chat message of one user, as JSON. */
static char* user_message(const char* content) {
  char* json = malloc(6 * strlen(content) + 64);
  if (!json) abort();
  char* end = json + sprintf(json, "[{\"role\": \"user\", \"content\": \"");
  for (const char* c = content; *c; c++) {
    if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') {
      end += sprintf(end, "\\u%04x", *c);
    } else {
      *end++ = *c;
    }
  }
  strcpy(end, "\"}]");
  return json;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
    return 2;
  }
  cow_mlx_model model;
  cow_mlx_context context;
  cow_mlx_model_params loading;
  cow_mlx_model_params_init(&loading, sizeof loading);
  loading.progress = print_progress;

  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_model_load(argv[1], &loading, &model));
  check(cow_mlx_context_create(model, NULL, &context));

  int32_t tokens[MAX_PROMPT_TOKENS];
  size_t count;
  char* messages = user_message(argv[2]);
  check(cow_mlx_model_chat_prompt(model, messages, COW_MLX_NUL, NULL, tokens, MAX_PROMPT_TOKENS,
                                  &count));
  free(messages);

  cow_mlx_stats stats = {.struct_size = sizeof stats};
  check(cow_mlx_context_generate(context, tokens, count, NULL, print_text, NULL, &stats));
  printf("\n\nprompt: %zu tokens, %.0f tokens/s   decode: %zu tokens, %.0f tokens/s\n",
         stats.prompt_tokens, (double)stats.prompt_tokens / stats.prompt_seconds,
         stats.generated_tokens, (double)stats.generated_tokens / stats.generation_seconds);
  check(cow_mlx_runtime_stop());
  return 0;
}
