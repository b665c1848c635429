/* The semaphores that threads sleep on. */
#ifndef COW_SEMAPHORES_H
#define COW_SEMAPHORES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "helper.h"

#ifdef __APPLE__ /* sem_init() fails there, and its own semaphores cost a system call each to make \
                  */
#include <mach/mach.h>
#include <pthread.h>
typedef semaphore_t cow_semaphore;
typedef struct cow_sleeper {
  pthread_mutex_t lock;
  pthread_cond_t woken;
  unsigned int times;
} cow_sleeper;
#else
#include <semaphore.h>
typedef sem_t cow_semaphore;
typedef sem_t cow_sleeper;
#endif

/* The time of CLOCK_REALTIME after so many microseconds. sem_clockwait() is not everywhere: a clock
 * that is set meanwhile changes how long a wait takes. */
struct timespec cow_time_after(int64_t microseconds);

/* For the dispatch thread: a signal handler may post, which no condition variable allows. */

/* With the count 0. It is never destroyed. False if the system has no semaphore left. */
bool cow_semaphore_init(cow_semaphore* semaphore);

/* Async-signal-safe; errno stays as it is. */
void cow_semaphore_post(cow_semaphore* semaphore);

void cow_semaphore_wait(cow_semaphore* semaphore);

/* False if no thread has posted when the time is over, or a signal came first. */
bool cow_semaphore_wait_for(cow_semaphore* semaphore, int64_t microseconds);

/* How long to spin, and how often that has failed since it last succeeded. */
typedef struct cow_spins {
  int microseconds;
  atomic_uint failed;
} cow_spins;

/* From now on, callers that spin call this helper, which stays as long as the process. */
void cow_sleepers_help(const cow_helper* helper);

/* Check a condition for a while, since waking a thread may take longer than the wait. Returns
 * whether it became true. After repeated failures, as on a single processor, nearly all calls check
 * it once. */
bool cow_spin_until(bool (*is_there)(void* context), void* context, cow_spins* spins);

/* For callers. It may lie on the caller's stack: a thread that has slept as often as it was woken
 * may destroy it. */

void cow_sleeper_init(cow_sleeper* sleeper);
void cow_sleeper_destroy(cow_sleeper* sleeper);

/* Sleep until woken once more than it has slept. */
void cow_sleeper_sleep(cow_sleeper* sleeper);

/* Spin instead of sleeping, and help as long as there is something to help with. True if the
 * sleeper was woken, which counts as a sleep. */
bool cow_sleeper_spin(cow_sleeper* sleeper, cow_spins* spins);

void cow_sleeper_wake(cow_sleeper* sleeper);

#endif
