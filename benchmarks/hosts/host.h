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
