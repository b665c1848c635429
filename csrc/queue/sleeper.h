/* Where a caller sleeps until its request has an event or ends. It may lie on the caller's stack:
 * whoever has slept as often as it was woken may destroy it. */
#ifndef COW_SLEEPER_H
#define COW_SLEEPER_H

#ifdef __APPLE__
#include <pthread.h>
typedef struct cow_sleeper {
  pthread_mutex_t lock;
  pthread_cond_t woken;
  unsigned int times;
} cow_sleeper; /* sem_init() fails there, and its own semaphores cost a call each to make */
#else
#include <semaphore.h>
typedef sem_t cow_sleeper;
#endif

void cow_sleeper_init(cow_sleeper* sleeper);
void cow_sleeper_destroy(cow_sleeper* sleeper);

/* Sleep until it was woken once more than it has slept. */
void cow_sleeper_sleep(cow_sleeper* sleeper);

void cow_sleeper_wake(cow_sleeper* sleeper);

#endif
