#include "wake_semaphore.h"

#include <errno.h>

#ifdef __APPLE__

bool cow_semaphore_init(cow_semaphore* semaphore) {
  return semaphore_create(mach_task_self(), semaphore, SYNC_POLICY_FIFO, 0) == KERN_SUCCESS;
}

/* A system call and nothing else. */
void cow_semaphore_post(cow_semaphore* semaphore) { semaphore_signal(*semaphore); }

void cow_semaphore_wait(cow_semaphore* semaphore) {
  while (semaphore_wait(*semaphore) == KERN_ABORTED) continue;
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

#endif
