/* Forks, at rest and while another thread generates: the child is refused, the parent goes on. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

static int child(const session* s) {
  char buffer[256];
  size_t length = 7;
  cow_mlx_model model = 7;
  EXPECT(cow_mlx_runtime_start(NULL) == COW_MLX_EFORK);
  EXPECT(strstr(cow_mlx_error_message(), "fork"));
  EXPECT(cow_mlx_runtime_stop() == COW_MLX_EFORK);
  EXPECT(cow_mlx_runtime_info(buffer, sizeof buffer, &length) == COW_MLX_EFORK && length == 7);
  EXPECT(cow_mlx_memory_trim() == COW_MLX_EFORK);
  EXPECT(cow_mlx_model_load("anything", NULL, &model) == COW_MLX_EFORK && model == 7);
  EXPECT(generate(s, LENGTH, NULL, NULL) == COW_MLX_EFORK);
  EXPECT(cow_mlx_context_next(s->context, buffer, sizeof buffer, &length, NULL) == COW_MLX_EFORK);
  EXPECT(cow_mlx_context_cancel(s->context) == COW_MLX_EFORK);
  EXPECT(cow_mlx_context_free(s->context) == COW_MLX_EFORK);
  EXPECT(strcmp(cow_mlx_version(), COW_MLX_VERSION) == 0);
  EXPECT(strcmp(cow_mlx_status_name(COW_MLX_EFORK), "EFORK") == 0);
  return 0;
}

static void fork_once(const session* s) {
  pid_t id = fork();
  EXPECT(id >= 0);
  if (id == 0) exit(child(s));
  int status;
  EXPECT(waitpid(id, &status, 0) == id);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  session s = open_session(argv[1]);
  fork_once(&s);
  session busy = open_session(argv[1]);
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, generate_forever, &busy) == 0);
  await_generation(&busy);
  for (int i = 0; i < 5; i++) fork_once(&s);
  EXPECT_OK(generate(&s, LENGTH, print_text, NULL));
  EXPECT_OK(cow_mlx_runtime_stop());
  pthread_join(thread, NULL);
  return 0;
}
