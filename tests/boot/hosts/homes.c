/* Naming a Python: a wrong name costs one start only, and another one is refused
 * while a Python runs. argv[2] is a Python home, argv[3] a libpython to map. */
#include <dlfcn.h>

#include "host.h"

static cow_mlx_status start(const char* home) {
  cow_mlx_runtime_params params;
  cow_mlx_runtime_params_init(&params, sizeof params);
  params.python_home = home;
  return cow_mlx_runtime_start(&params);
}

int main(int argc, char** argv) {
  EXPECT(argc == 4);
  if (argv[3][0]) EXPECT(dlopen(argv[3], RTLD_NOW | RTLD_GLOBAL));
  EXPECT(start("/nowhere") == COW_MLX_ENOENT);
  EXPECT(strstr(cow_mlx_error_message(), "/nowhere"));
  EXPECT_OK(start(argv[2]));
  EXPECT_OK(cow_mlx_runtime_stop());
  EXPECT(start("/nowhere") == COW_MLX_EUNSUPPORTED);
  EXPECT(strstr(cow_mlx_error_message(), argv[2]));
  EXPECT_OK(start(argv[2]));
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  return 0;
}
