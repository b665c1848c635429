/* Starts the runtime with each of the Python homes given, "NULL" being none; prints how it goes. */
#include <stdio.h>
#include <string.h>

#include "cow_mlx.h"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    cow_mlx_runtime_params params;
    cow_mlx_runtime_params_init(&params, sizeof params);
    params.python_home = strcmp(argv[i], "NULL") == 0 ? NULL : argv[i];
    cow_mlx_status status = cow_mlx_runtime_start(&params);
    printf("%s %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
    if (status == COW_MLX_OK) cow_mlx_runtime_stop();
  }
  return 0;
}
