/* Starts and stops with each of its arguments as a python_home, "" being none; prints the
 * statuses and messages, and the result of runtime_info. */
#include "host.h"

int main(int argc, char** argv) {
  EXPECT(argc >= 2);
  for (int i = 1; i < argc; i++) {
    char info[16384] = "";
    size_t length;
    cow_mlx_runtime_params params;
    cow_mlx_runtime_params_init(&params, sizeof params);
    if (argv[i][0]) params.python_home = argv[i];
    cow_mlx_status status = cow_mlx_runtime_start(&params);
    printf("%s\n%s\n", cow_mlx_status_name(status), cow_mlx_error_message());
    if (status == COW_MLX_OK) {
      EXPECT_OK(cow_mlx_runtime_info(info, sizeof info, &length));
      EXPECT_OK(cow_mlx_runtime_stop());
    }
    printf("%s\n", info);
  }
  return 0;
}
