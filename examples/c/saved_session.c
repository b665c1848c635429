/*
 * Process a long prompt once, and continue from it in every later run: saved_session MODEL FILE
 * TEXT
 */
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 4096 };

/* What every run begins with. */
static const char story[] =
    "Once upon a time there was a little fox who lived at the edge of a big forest. Every morning "
    "he ran down to the river to see his friend, the old frog. The frog knew many stories, and the "
    "fox loved to hear them. One day the frog was sad. His favourite stone had rolled into the "
    "water, and now he had no place to sit. The fox wanted to help his friend. He looked here and "
    "he looked there, and then he had an idea.";

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

static bool print_text(const char* text, size_t length, void* user_data) {
  (void)user_data;
  fwrite(text, 1, length, stdout);
  fflush(stdout);
  return true;
}

/* Let the context hold the story: from the file, or by processing it. */
static void remember(cow_mlx_context context, const char* file, const int32_t* tokens,
                     size_t count) {
  cow_mlx_status status = cow_mlx_context_load(context, file);
  if (status == COW_MLX_OK) {
    printf("loaded %s\n", file);
    return;
  }
  if (status != COW_MLX_ENOENT) check(status);

  cow_mlx_generation_params nothing;
  cow_mlx_generation_params_init(&nothing, sizeof nothing);
  nothing.max_tokens = 0;
  check(cow_mlx_context_begin(context, tokens, count, &nothing));
  check(cow_mlx_context_save(context, file));
  printf("processed %zu tokens and saved them to %s\n", count, file);
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s MODEL FILE TEXT\n", argv[0]);
    return 2;
  }
  const char *folder = argv[1], *file = argv[2], *text = argv[3];
  cow_mlx_model model;
  cow_mlx_context context;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_model_load(folder, NULL, &model));
  check(cow_mlx_context_create(model, NULL, &context));

  int32_t tokens[MAX_TOKENS];
  size_t count, more;
  check(cow_mlx_model_tokenize(model, story, strlen(story), COW_MLX_ADD_SPECIAL, tokens, MAX_TOKENS,
                               &count));
  remember(context, file, tokens, count);

  /* A prompt is always given whole; what the context holds of it is not processed again. */
  check(cow_mlx_model_tokenize(model, text, strlen(text), 0, tokens + count, MAX_TOKENS - count,
                               &more));
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = 40;
  cow_mlx_stats stats = {.struct_size = sizeof stats};
  printf("%s", text);
  check(cow_mlx_context_generate(context, tokens, count + more, &params, print_text, NULL, &stats));
  printf("\n%zu of %zu prompt tokens were reused\n", stats.reused_tokens, stats.prompt_tokens);
  check(cow_mlx_runtime_stop());
  return 0;
}
