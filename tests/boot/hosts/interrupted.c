/* SIGINT while it generates. argv[2]: "default", or "handler" for the host's handler. */
#include <signal.h>

#include "host.h"

static volatile sig_atomic_t caught;

static void handle(int number) {
  (void)number;
  caught++;
}

static bool interrupt(const char* text, size_t length, void* user_data) {
  (void)text, (void)length, (void)user_data;
  raise(SIGINT);
  return caught < 3;
}

int main(int argc, char** argv) {
  EXPECT(argc == 3);
  bool own = strcmp(argv[2], "handler") == 0;
  signal(SIGINT, own ? handle : SIG_DFL); /* a test in the background inherits SIG_IGN */
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  session s = open_session(argv[1]);
  struct sigaction action;
  sigaction(SIGINT, NULL, &action);
  EXPECT(action.sa_handler == (own ? handle : SIG_DFL));
  EXPECT(generate(&s, LENGTH, interrupt, NULL) == COW_MLX_ECANCELED);
  EXPECT(caught == 3);
  EXPECT_OK(cow_mlx_runtime_stop());
  return 0;
}
