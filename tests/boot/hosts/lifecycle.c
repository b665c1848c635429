/* Starts and stops: counted, repeated, refused. */
#include <pthread.h>

#include "host.h"

static char info[1 << 16];
static size_t length;

static void expect_not_running(void) {
  cow_mlx_model model = 7;
  EXPECT(cow_mlx_runtime_info(info, sizeof info, &length) == COW_MLX_ESTATE);
  EXPECT(strstr(cow_mlx_error_message(), "runtime_info"));
  EXPECT(strstr(cow_mlx_error_message(), "runtime_start"));
  EXPECT(cow_mlx_model_load("anything", NULL, &model) == COW_MLX_ESTATE && model == 7);
  EXPECT(cow_mlx_memory_trim() == COW_MLX_ESTATE);
  EXPECT(cow_mlx_context_cancel(1) == COW_MLX_ESTATE);
  EXPECT(cow_mlx_runtime_stop() == COW_MLX_ESTATE);
  EXPECT(cow_mlx_error_message()[0]);
}

/* One start, one generation, one stop; the handles of the round before are dead. */
static session one_round(const char* path, const session* before) {
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  if (before) {
    EXPECT(cow_mlx_model_info(before->model, info, sizeof info, &length) == COW_MLX_EHANDLE);
    EXPECT(cow_mlx_context_reset(before->context) == COW_MLX_EHANDLE);
    EXPECT(cow_mlx_context_cancel(before->context) == COW_MLX_EHANDLE);
  }
  session s = open_session(path);
  if (before) EXPECT(s.model != before->model && s.context != before->context);
  EXPECT_OK(generate(&s, LENGTH, print_text, NULL));
  EXPECT_OK(cow_mlx_runtime_stop());
  expect_not_running();
  return s;
}

static void counted(void) {
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  EXPECT_OK(cow_mlx_runtime_stop());
  EXPECT_OK(cow_mlx_memory_trim());
  EXPECT_OK(cow_mlx_runtime_stop());
  expect_not_running();
}

static void other_params(void) {
  cow_mlx_runtime_params first, other;
  cow_mlx_runtime_params_init(&first, sizeof first);
  cow_mlx_runtime_params_init(&other, sizeof other);
  first.device = "cpu";
  other.device = "cpu";
  other.memory_limit = (uint64_t)1 << 40;
  EXPECT_OK(cow_mlx_runtime_start(&first));
  EXPECT(cow_mlx_runtime_start(&other) == COW_MLX_ESTATE);
  EXPECT(cow_mlx_error_message()[0]);
  EXPECT_OK(cow_mlx_runtime_start(&first));
  EXPECT_OK(cow_mlx_runtime_start(NULL)); /* as it runs */
  for (int i = 0; i < 3; i++) EXPECT_OK(cow_mlx_runtime_stop());
  expect_not_running();
}

/* A start that fails leaves the next one a chance. */
static void refused_params(void) {
  cow_mlx_runtime_params params;
  cow_mlx_runtime_params_init(&params, sizeof params);
  params.device = "abacus";
  EXPECT(cow_mlx_runtime_start(&params) < 0);
  EXPECT(strstr(cow_mlx_error_message(), "abacus"));
  expect_not_running();
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  EXPECT_OK(cow_mlx_runtime_stop());
}

static void* run_until_cancelled(void* data) {
  const session* s = data;
  cow_mlx_status status;
  do {
    status = generate(s, SIZE_MAX, NULL, NULL);
  } while (status == COW_MLX_OK);
  EXPECT(status == COW_MLX_ECANCELED || status == COW_MLX_ESTATE);
  EXPECT(cow_mlx_error_message()[0]);
  return NULL;
}

/* A stop ends the calls of other threads. */
static void stop_cancels(const char* path) {
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  session s = open_session(path);
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, run_until_cancelled, &s) == 0);
  await_generation(&s);
  EXPECT_OK(cow_mlx_runtime_stop());
  pthread_join(thread, NULL);
}

static bool stop_here(const char* text, size_t size, void* user_data) {
  (void)text, (void)size, (void)user_data;
  EXPECT_OK(cow_mlx_runtime_stop());
  return true;
}

/* A callback may stop the runtime that runs its own call. */
static void stop_in_callback(const char* path) {
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  session s = open_session(path);
  EXPECT(generate(&s, LENGTH, stop_here, NULL) == COW_MLX_ECANCELED);
  EXPECT(strstr(cow_mlx_error_message(), "context_generate"));
  expect_not_running();
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  expect_not_running();
  session first = one_round(argv[1], NULL);
  one_round(argv[1], &first);
  counted();
  other_params();
  refused_params();
  stop_cancels(argv[1]);
  stop_in_callback(argv[1]);
  return 0;
}
