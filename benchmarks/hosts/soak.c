/*
 * Short generations of every kind, again and again: soak MODEL
 *
 * Prints "ready", then answers each line "KIND COUNT TOKEN..." after COUNT generations
 * with the bytes of mlx's live arrays after memory_trim. Each generation has its own
 * context, a prompt that begins with the tokens, and another mix of options.
 */
#include "host.h"

static void generate(cow_mlx_model model, const task* asked, size_t round) {
  static const char* const stops[] = {"the", "\n"};
  cow_mlx_context context;
  cow_mlx_context fork;
  cow_mlx_checkpoint checkpoint;
  cow_mlx_generation_params params;
  cow_mlx_context_params kind;
  cow_mlx_context_params_init(&kind, sizeof kind);
  cow_mlx_generation_params_init(&params, sizeof params);
  kind.kv_bits = round % 5 == 0 ? 8 : 0;
  params.max_tokens = 4 + round % 8;
  params.temperature = round % 2 ? 0.8f : 0;
  params.seed = round;
  params.top_p = round % 3 ? 1 : 0.9f;
  params.stop = stops;
  params.stop_count = round % 4 == 0 ? 2 : 0;
  params.draft_tokens = round % 7 == 0 ? 4 : 0;
  check(cow_mlx_context_create(model, &kind, &context));
  check(cow_mlx_context_generate(context, asked->prompt, asked->count - round % 8, &params, NULL,
                                 NULL, NULL));
  check(cow_mlx_context_checkpoint(context, &checkpoint));
  check(cow_mlx_context_fork(context, &fork));
  check(cow_mlx_context_rewind(context, checkpoint));
  check(cow_mlx_context_free(context));
  check(cow_mlx_context_free(fork));
}

static void report_memory(void) {
  char info[1 << 16];
  size_t length;
  check(cow_mlx_memory_trim());
  check(cow_mlx_runtime_info(info, sizeof info, &length));
  const char* active = strstr(info, "\"active\": ");
  printf("%ld\n", active ? atol(active + strlen("\"active\": ")) : -1);
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  static task asked;
  size_t round = 0;
  cow_mlx_model model = start(argv[1]);
  ready();
  while (read_task(&asked)) {
    for (size_t i = 0; i < asked.max_tokens; i++) generate(model, &asked, round++);
    report_memory();
  }
  return 0;
}
