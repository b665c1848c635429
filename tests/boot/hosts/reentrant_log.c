/* A log function may call the library, starting and stopping included. */
#include "host.h"

static int heard;

static void hear(int32_t level, const char* message, void* user_data) {
  (void)level;
  (void)message;
  (void)user_data;
  if (heard++ > 0) return;
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  EXPECT_OK(cow_mlx_memory_trim());
  EXPECT_OK(cow_mlx_runtime_stop());
  EXPECT(cow_mlx_model_free(1) == COW_MLX_EHANDLE);
}

int main(void) {
  cow_mlx_runtime_params params;
  cow_mlx_runtime_params_init(&params, sizeof params);
  params.log = hear;
  EXPECT_OK(cow_mlx_runtime_start(&params));
  EXPECT(heard > 0);
  EXPECT(cow_mlx_error_message()[0] == '\0');
  EXPECT_OK(cow_mlx_runtime_stop());
  return 0;
}
