#ifndef __APPLE__
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#endif

#include "boot/resources.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#elif defined(__APPLE__)
#include <malloc/malloc.h>
#endif

enum { MAX_THREADS = 256 };

/* All threads must exist at the same time. */
typedef struct gathering {
  pthread_mutex_t lock;
  pthread_cond_t opened;
  bool open;
} gathering;

static void* wait_for_opening(void* data) {
  gathering* g = data;
  pthread_mutex_lock(&g->lock);
  while (!g->open) pthread_cond_wait(&g->opened, &g->lock);
  pthread_mutex_unlock(&g->lock);
  return NULL;
}

bool cow_resources_threads(int count) {
  gathering g = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
  pthread_t threads[MAX_THREADS];
  int wanted = count < MAX_THREADS / 2 ? 2 * count : MAX_THREADS;
  int started = 0;
  while (started < wanted && !pthread_create(&threads[started], NULL, wait_for_opening, &g)) {
    started++;
  }
  pthread_mutex_lock(&g.lock);
  g.open = true;
  pthread_cond_broadcast(&g.opened);
  pthread_mutex_unlock(&g.lock);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
  return started == wanted;
}

bool cow_resources_memory(size_t size) {
  void* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, size);
  return true;
}

void cow_resources_give_back(void) {
#if defined(__GLIBC__)
  malloc_trim(0);
#elif defined(__APPLE__)
  malloc_zone_pressure_relief(NULL, 0);
#endif
}

int cow_resources_files(void) {
  int first = open("/dev/null", O_RDONLY | O_CLOEXEC);
  int second = open("/dev/null", O_RDONLY | O_CLOEXEC);
  int failure = second < 0 ? errno : 0;
  if (first >= 0) close(first);
  if (second >= 0) close(second);
  return failure == EMFILE || failure == ENFILE ? failure : 0; /* /dev/null may be missing */
}
