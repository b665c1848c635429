/* Shared by the C hosts of the benchmarks. */
#ifndef BENCHMARK_HOST_H
#define BENCHMARK_HOST_H

#include <cow_mlx.h>
#include "protocol.h"

static inline void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

/* Start the runtime and load a model. The variable ACTIVATIONS may be "exact" or "int8". */
static inline cow_mlx_model start(const char* path) {
  cow_mlx_model model;
  check(cow_mlx_runtime_start(NULL));
  cow_mlx_model_params params;
  cow_mlx_model_params_init(&params, sizeof params);
  const char* asked = getenv("ACTIVATIONS");
  if (asked && strcmp(asked, "exact") == 0) params.activations = COW_MLX_ACTIVATIONS_EXACT;
  if (asked && strcmp(asked, "int8") == 0) params.activations = COW_MLX_ACTIVATIONS_INT8;
  check(cow_mlx_model_load(path, &params, &model));
  return model;
}

/* Without shared prompts, every prompt is processed. */
static inline cow_mlx_context open_context(cow_mlx_model model, bool share_prefix) {
  cow_mlx_context context;
  cow_mlx_context_params params;
  cow_mlx_context_params_init(&params, sizeof params);
  params.share_prefix = share_prefix;
  check(cow_mlx_context_create(model, &params, &context));
  return context;
}

static inline cow_mlx_generation_params greedy(size_t max_tokens) {
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = max_tokens;
  return params;
}

/* A generation: seconds to its first token, and from there to the last; and its tokens. */
typedef struct generated {
  double first, rest;
  int32_t tokens[MAX_TOKENS];
  size_t count;
} generated;

/* Generate behind a prompt. The time to the first token is since `begun`. */
static inline void generate_tokens(cow_mlx_context context, const int32_t* prompt, size_t length,
                                   const cow_mlx_generation_params* params, double begun,
                                   generated* out) {
  char text[256];
  size_t written;
  cow_mlx_piece piece = {.struct_size = sizeof piece};
  cow_mlx_status status;
  double first = 0, last = 0;
  out->count = 0;
  check(cow_mlx_context_begin(context, prompt, length, params));
  while ((status = cow_mlx_context_next(context, text, sizeof text, &written, &piece)) ==
         COW_MLX_OK) {
    last = now();
    if (out->count == 0) first = last;
    out->tokens[out->count++] = piece.token;
  }
  if (status != COW_MLX_DONE) check(status);
  out->first = first - begun;
  out->rest = last - first;
}

/* Print "FIRST REST CPU TOKEN...". */
static inline void print_generated(const generated* own, double spent) {
  printf("%.9f %.9f %.9f", own->first, own->rest, spent);
  for (size_t i = 0; i < own->count; i++) printf(" %d", own->tokens[i]);
  printf("\n");
}

/* Generate behind a prompt; returns the number of tokens, and when they came in `times`. */
static inline size_t decode(cow_mlx_context context, const int32_t* prompt, size_t length,
                            const cow_mlx_generation_params* params, double* times) {
  char text[256];
  size_t written, count = 0;
  cow_mlx_status status;
  check(cow_mlx_context_begin(context, prompt, length, params));
  while ((status = cow_mlx_context_next(context, text, sizeof text, &written, NULL)) == COW_MLX_OK)
    times[count++] = now();
  if (status != COW_MLX_DONE) check(status);
  return count;
}

/* Sort the gaps between `count` times; returns how many there are. */
static inline size_t sorted_gaps(const double* times, size_t count, double* gaps) {
  for (size_t i = 1; i < count; i++) gaps[i - 1] = times[i] - times[i - 1];
  qsort(gaps, count - 1, sizeof *gaps, compare);
  return count - 1;
}

#endif
