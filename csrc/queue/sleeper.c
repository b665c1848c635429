#include "queue/sleeper.h"

#ifdef __APPLE__

void cow_sleeper_init(cow_sleeper* sleeper) {
  pthread_mutex_init(&sleeper->lock, NULL);
  pthread_cond_init(&sleeper->woken, NULL);
  sleeper->times = 0;
}

void cow_sleeper_destroy(cow_sleeper* sleeper) {
  pthread_cond_destroy(&sleeper->woken);
  pthread_mutex_destroy(&sleeper->lock);
}

void cow_sleeper_sleep(cow_sleeper* sleeper) {
  pthread_mutex_lock(&sleeper->lock);
  while (sleeper->times == 0) pthread_cond_wait(&sleeper->woken, &sleeper->lock);
  sleeper->times--;
  pthread_mutex_unlock(&sleeper->lock);
}

/* The one who sleeps returns behind the lock, so nothing is touched that it destroys. */
void cow_sleeper_wake(cow_sleeper* sleeper) {
  pthread_mutex_lock(&sleeper->lock);
  sleeper->times++;
  pthread_cond_signal(&sleeper->woken);
  pthread_mutex_unlock(&sleeper->lock);
}

#else

#include <errno.h>

void cow_sleeper_init(cow_sleeper* sleeper) { sem_init(sleeper, 0, 0); }

void cow_sleeper_destroy(cow_sleeper* sleeper) { sem_destroy(sleeper); }

void cow_sleeper_sleep(cow_sleeper* sleeper) {
  while (sem_wait(sleeper) && errno == EINTR) continue;
}

void cow_sleeper_wake(cow_sleeper* sleeper) { sem_post(sleeper); }

#endif
