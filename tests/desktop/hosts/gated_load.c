/*
 * Waits in cow_mlx_model_load until somebody writes to the pipe that COWMLX_TEST_GATE names, or
 * could: linked with -Wl,--wrap=cow_mlx_model_load.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "cow_mlx.h"

cow_mlx_status __real_cow_mlx_model_load(const char* path, const cow_mlx_model_params* params,
                                         cow_mlx_model* model);
cow_mlx_status __wrap_cow_mlx_model_load(const char* path, const cow_mlx_model_params* params,
                                         cow_mlx_model* model);

cow_mlx_status __wrap_cow_mlx_model_load(const char* path, const cow_mlx_model_params* params,
                                         cow_mlx_model* model) {
  close(open(getenv("COWMLX_TEST_GATE"), O_RDONLY));
  return __real_cow_mlx_model_load(path, params, model);
}
