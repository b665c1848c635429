/* Threads of the package. */
#include "CCowMLX.h"

#include <pthread.h>
#include <stdlib.h>

struct start {
  void (*run)(void* argument);
  void* argument;
};

static void* run(void* argument) {
  struct start start = *(struct start*)argument;
  free(argument);
#ifdef __APPLE__
  pthread_setname_np("cowmlx.calls");
#endif
  start.run(start.argument);
  return NULL;
}

bool cow_mlx_start_thread(void (*function)(void*), void* argument) {
  struct start* start = malloc(sizeof *start);
  if (!start) return false;
  *start = (struct start){function, argument};
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, start) != 0) {
    free(start);
    return false;
  }
  pthread_detach(thread);
  return true;
}
