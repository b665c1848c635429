/* Threads that start and stop as often as they can. Between a thread's own start
 * and stop the runtime runs, whatever the others do. */
#include <pthread.h>

#include "host.h"

enum { THREADS = 4, ROUNDS = 100 };

static void* run(void* unused) {
  for (int round = 0; round < ROUNDS; round++) {
    EXPECT_OK(cow_mlx_runtime_start(NULL));
    EXPECT_OK(cow_mlx_memory_trim());
    EXPECT_OK(cow_mlx_runtime_stop());
  }
  return unused;
}

int main(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, run, NULL) == 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  EXPECT(cow_mlx_memory_trim() == COW_MLX_ESTATE);
  return 0;
}
