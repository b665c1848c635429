/* Log messages: on the thread of the call, up to the level that was asked for. */
#include <pthread.h>

#include "host.h"

typedef struct heard {
  pthread_t thread;
  int count;
  char last[256];
} heard;

static void hear(int32_t level, const char* message, void* user_data) {
  heard* h = user_data;
  EXPECT(level == COW_MLX_LOG_INFO || level == COW_MLX_LOG_WARNING);
  EXPECT(message && message[0]);
  EXPECT(pthread_equal(h->thread, pthread_self()));
  h->count++;
  snprintf(h->last, sizeof h->last, "%s", message);
}

static int messages_of_a_start(cow_mlx_log_fn log, int32_t level) {
  heard h = {.thread = pthread_self()};
  cow_mlx_runtime_params params;
  cow_mlx_runtime_params_init(&params, sizeof params);
  params.log = log;
  params.log_user_data = &h;
  params.log_level = level;
  EXPECT_OK(cow_mlx_runtime_start(&params));
  EXPECT_OK(cow_mlx_runtime_stop());
  return h.count;
}

static int messages_of_a_load(const char* model) {
  heard h = {.thread = pthread_self()};
  cow_mlx_runtime_params params;
  cow_mlx_runtime_params_init(&params, sizeof params);
  params.log = hear;
  params.log_user_data = &h;
  EXPECT_OK(cow_mlx_runtime_start(&params));
  int before = h.count;
  cow_mlx_model handle;
  EXPECT_OK(cow_mlx_model_load(model, NULL, &handle));
  EXPECT(strstr(h.last, "model loaded") && strstr(h.last, "calf"));
  int loaded = h.count - before;
  EXPECT_OK(cow_mlx_runtime_stop());
  return loaded;
}

int main(int count, char** arguments) {
  EXPECT(count == 2);
  EXPECT(messages_of_a_load(arguments[1]) == 1);
  EXPECT(messages_of_a_start(hear, COW_MLX_LOG_INFO) > 0);
  EXPECT(messages_of_a_start(hear, COW_MLX_LOG_WARNING) == 0);
  EXPECT(messages_of_a_start(hear, COW_MLX_LOG_OFF) == 0);
  EXPECT(messages_of_a_start(NULL, COW_MLX_LOG_INFO) == 0);
  cow_mlx_runtime_params params;
  cow_mlx_runtime_params_init(&params, sizeof params);
  params.log_level = COW_MLX_LOG_INFO + 1;
  EXPECT(cow_mlx_runtime_start(&params) == COW_MLX_EINVAL);
  return 0;
}
