/*
 * Idle contexts: idle MODEL
 *
 * Prints "ready", then answers each line "KIND COUNT CONTEXTS TOKEN..." with the median seconds of
 * one context's tokens: COUNT of them are generated from the prompt's beginning, once there are
 * CONTEXTS others, each of which has generated as many from all of it and is idle.
 */
#include "host.h"

/* Generate; returns the median seconds of a token behind the first. */
static double use(cow_mlx_context context, const task* asked) {
  static double times[MAX_TOKENS], gaps[MAX_TOKENS];
  cow_mlx_generation_params params = greedy(asked->max_tokens);
  size_t tokens = decode(context, asked->prompt + 1, asked->count - 1, &params, times);
  return tokens < 2 ? 0 : gaps[sorted_gaps(times, tokens, gaps) / 2];
}

int main(int count, char** arguments) {
  static task asked;
  if (count != 2) return 2;
  cow_mlx_model model = start(arguments[1]);
  cow_mlx_context measured = open_context(model, false);
  size_t idle = 0;
  ready();
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
