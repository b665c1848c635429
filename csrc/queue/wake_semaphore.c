#define _POSIX_C_SOURCE 200809L /* clock_gettime(), sem_timedwait() */
#include "queue/wake_semaphore.h"

#include <errno.h>
#include <time.h>

#ifdef __APPLE__

bool cow_semaphore_init(cow_semaphore* semaphore) {
  return semaphore_create(mach_task_self(), semaphore, SYNC_POLICY_FIFO, 0) == KERN_SUCCESS;
}

/* A system call and nothing else. */
void cow_semaphore_post(cow_semaphore* semaphore) { semaphore_signal(*semaphore); }

void cow_semaphore_wait(cow_semaphore* semaphore) {
  while (semaphore_wait(*semaphore) == KERN_ABORTED) continue;
}

bool cow_semaphore_wait_for(cow_semaphore* semaphore, int64_t microseconds) {
  mach_timespec_t time = {(unsigned)(microseconds / 1000000),
                          (clock_res_t)(microseconds % 1000000 * 1000)};
  return semaphore_timedwait(*semaphore, time) == KERN_SUCCESS;
}

#else

bool cow_semaphore_init(cow_semaphore* semaphore) { return sem_init(semaphore, 0, 0) == 0; }

void cow_semaphore_post(cow_semaphore* semaphore) {
  int error = errno;
  sem_post(semaphore);
  errno = error;
}

void cow_semaphore_wait(cow_semaphore* semaphore) {
  while (sem_wait(semaphore) && errno == EINTR) continue;
}

/* sem_clockwait() is not everywhere: a clock that is set meanwhile changes how long this waits. */
bool cow_semaphore_wait_for(cow_semaphore* semaphore, int64_t microseconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  int64_t nanoseconds = until.tv_nsec + microseconds % 1000000 * 1000;
  until.tv_sec += (time_t)(microseconds / 1000000 + nanoseconds / 1000000000);
  until.tv_nsec = (long)(nanoseconds % 1000000000);
  return sem_timedwait(semaphore, &until) == 0;
}

#endif
