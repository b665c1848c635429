/*
 * Idle contexts: idle MODEL
 *
 * Prints "ready", then answers each line "KIND COUNT CONTEXTS TOKEN..." with the median seconds of
 * one context's tokens: COUNT of them are generated from the prompt's beginning, once there are
 * CONTEXTS others, each of which has generated as many from all of it and is idle.
 */
#include "host.h"

static int compare(const void* a, const void* b) {
  double x = *(const double*)a;
  double y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Generate; returns the median seconds of a token behind the first. */
static double use(cow_mlx_context context, const task* asked) {
  static double took[MAX_TOKENS];
  char text[256];
  size_t length;
  size_t tokens = 0;
  cow_mlx_status status;
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = asked->max_tokens;
  check(cow_mlx_context_begin(context, asked->prompt + 1, asked->count - 1, &params));
  double last = now();
  while ((status = cow_mlx_context_next(context, text, sizeof text, &length, NULL)) == COW_MLX_OK) {
    double here = now();
    if (tokens++ > 0) took[tokens - 2] = here - last;
    last = here;
  }
  if (status != COW_MLX_DONE) check(status);
  if (tokens < 2) return 0;
  qsort(took, tokens - 1, sizeof *took, compare);
  return took[(tokens - 1) / 2];
}

int main(int count, char** arguments) {
  static task asked;
  cow_mlx_model model;
  if (count != 2) return 1;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_model_load(arguments[1], NULL, &model));
  cow_mlx_context measured = open_context(model, false);
  size_t idle = 0;
  printf("ready\n");
  fflush(stdout);
  while (read_task(&asked)) {
    for (; idle < (size_t)asked.prompt[0]; idle++) use(open_context(model, false), &asked);
    use(measured, &asked); /* warms up */
    check(cow_mlx_context_reset(measured));
    printf("%.9f\n", use(measured, &asked));
    fflush(stdout);
  }
  check(cow_mlx_runtime_stop());
  return 0;
}
