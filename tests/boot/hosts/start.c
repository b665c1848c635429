/* Starts, and prints the status and the message. argv[1]: a python_home, or "". */
#include "host.h"

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  cow_mlx_runtime_params params;
  cow_mlx_runtime_params_init(&params, sizeof params);
  if (argv[1][0]) params.python_home = argv[1];
  cow_mlx_status status = cow_mlx_runtime_start(&params);
  printf("%s\n%s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  if (status == COW_MLX_OK) EXPECT_OK(cow_mlx_runtime_stop());
  return 0;
}
