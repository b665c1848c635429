/* Ends without a stop while another thread generates. */
#include <pthread.h>

#include "host.h"

/* Registered first, so it runs after the library's own. */
static void look_back(void) {
  if (cow_mlx_memory_trim() == COW_MLX_ESTATE) return;
  fprintf(stderr, "the runtime still runs when the process ends\n");
  _Exit(1);
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  EXPECT(atexit(look_back) == 0);
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  static session s;
  s = open_session(argv[1]);
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, generate_forever, &s) == 0);
  await_generation(&s);
  return 0;
}
