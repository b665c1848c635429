/* Ten threads at once make the first start, generate, and stop. */
#include <pthread.h>

#include "host.h"

enum { THREADS = 10 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* Wait until all threads are here. */
static void meet(int* arrived) {
  pthread_mutex_lock(&lock);
  ++*arrived;
  pthread_cond_broadcast(&changed);
  while (*arrived < THREADS) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

static void* run(void* path) {
  static int ready, started;
  meet(&ready);
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  meet(&started);
  session s = open_session(path);
  EXPECT_OK(generate(&s, LENGTH, NULL, NULL));
  EXPECT_OK(cow_mlx_context_free(s.context));
  EXPECT_OK(cow_mlx_runtime_stop());
  return NULL;
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    EXPECT(pthread_create(&threads[i], NULL, run, argv[1]) == 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  EXPECT(cow_mlx_runtime_stop() == COW_MLX_ESTATE);
  return 0;
}
