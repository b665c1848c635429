/* What the C hosts of the benchmarks share. */
#ifndef BENCHMARK_HOST_H
#define BENCHMARK_HOST_H

#include <cow_mlx.h>
#include "protocol.h"

static inline void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

/* Activations as the variable ACTIVATIONS says: "exact", "int8", or the library's own choice. */
static inline cow_mlx_model load_model(const char* path) {
  cow_mlx_model model;
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

#endif
