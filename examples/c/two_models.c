/*
 * Two models answer at the same time: two_models [MODEL [MODEL]]
 * Each has its own thread; the library lets them take turns, token by token.
 */
#include <cow_mlx.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct answer {
  cow_mlx_model model;
  const char* messages;
  char text[8192];
  size_t length;
  cow_mlx_stats stats;
} answer;

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

/* Runs on the thread of its answer. */
static bool keep(const cow_mlx_event* event, void* user_data) {
  answer* to = user_data;
  if (event->kind != COW_MLX_EVENT_TEXT) return true;
  size_t room = sizeof to->text - to->length, length = event->length < room ? event->length : room;
  memcpy(to->text + to->length, event->text, length);
  to->length += length;
  return true;
}

static void* work(void* argument) {
  answer* of = argument;
  cow_mlx_context context;
  check(cow_mlx_context_create(of->model, NULL, &context));
  check(cow_mlx_context_chat(context, of->messages, COW_MLX_NUL, NULL, NULL, keep, of, &of->stats));
  check(cow_mlx_context_free(context));
  return NULL;
}

int main(int argc, char** argv) {
  const char* first = argc > 1 ? argv[1] : "models/calf";
  const char* paths[2] = {first, argc > 2 ? argv[2] : first};
  static answer answers[2] = {
      {.messages = "[{\"role\": \"user\", \"content\": \"What colour is a fox?\"}]",
       .stats.struct_size = sizeof(cow_mlx_stats)},
      {.messages = "[{\"role\": \"user\", \"content\": \"Tell me a story about an owl.\"}]",
       .stats.struct_size = sizeof(cow_mlx_stats)},
  };
  check(cow_mlx_runtime_start(NULL));
  for (int i = 0; i < 2; i++) check(cow_mlx_model_load(paths[i], NULL, &answers[i].model));

  pthread_t threads[2];
  for (int i = 0; i < 2; i++) {
    if (pthread_create(&threads[i], NULL, work, &answers[i]) != 0) return 1;
  }
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], NULL);
    printf("%s, %zu tokens: %.*s\n", paths[i], answers[i].stats.generated_tokens,
           (int)answers[i].length, answers[i].text);
  }
  check(cow_mlx_runtime_stop());
  return 0;
}
