/*
 * Two threads generate, a context each: fairness MODEL
 *
 * Prints "ready", then answers each line "KIND COUNT TOKEN..." with the tokens/s
 * of each thread, from its first token to its last. KIND is "alone" or "both".
 */
#include <pthread.h>

#include "host.h"

typedef struct worker {
  pthread_t thread;
  cow_mlx_context context;
  const task* asked;
  double rate;
} worker;

static void* run(void* data) {
  worker* self = data;
  char text[256];
  size_t length;
  cow_mlx_status status;
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = self->asked->max_tokens;
  check(cow_mlx_context_reset(self->context));
  check(cow_mlx_context_begin(self->context, self->asked->prompt, self->asked->count, &params));
  size_t count = 0;
  double first = 0;
  double last = 0;
  while ((status = cow_mlx_context_next(self->context, text, sizeof text, &length, NULL)) ==
         COW_MLX_OK) {
    last = now();
    if (count++ == 0) first = last;
  }
  if (status != COW_MLX_DONE) check(status);
  self->rate = (double)(count - 1) / (last - first);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  static task asked;
  cow_mlx_model model;
  worker workers[2];
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_model_load(argv[1], NULL, &model));
  for (int i = 0; i < 2; i++) check(cow_mlx_context_create(model, NULL, &workers[i].context));
  printf("ready\n");
  fflush(stdout);
  while (read_task(&asked)) {
    int count = strcmp(asked.kind, "both") == 0 ? 2 : 1;
    for (int i = 0; i < count; i++) {
      workers[i].asked = &asked;
      if (pthread_create(&workers[i].thread, NULL, run, &workers[i])) return 1;
    }
    for (int i = 0; i < count; i++) {
      pthread_join(workers[i].thread, NULL);
      printf("%.3f ", workers[i].rate);
    }
    printf("\n");
    fflush(stdout);
  }
  return 0;
}
