#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* clock_gettime(), sem_timedwait() */
#endif

#include "queue/semaphores.h"

#include "base/relax.h"

/* The pauses of a thread that spins between two checks. After PATIENCE failures only every SELDOMth
 * call spins. */
enum { PAUSES = 8, PATIENCE = 16, SELDOM = 128 };

static int64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static _Atomic(const cow_helper*) given_helper;

void cow_sleepers_help(const cow_helper* helper) { atomic_store(&given_helper, helper); }

static bool spin(bool (*is_there)(void* context), void* context, int64_t nanoseconds,
                 const cow_helper* helper) {
  bool came = false;
  int64_t end = now() + nanoseconds;
  if (helper) helper->look(true);
  do {
    for (int i = 0; i < PAUSES; i++) cow_relax();
    came = is_there(context);
    if (!came && helper && helper->help()) end = now() + nanoseconds;
  } while (!came && now() < end);
  if (helper) helper->look(false);
  return came;
}

static bool spin_if_worthwhile(bool (*is_there)(void* context), void* context, cow_spins* spins,
                               const cow_helper* helper) {
  if (is_there(context)) return true;
  const unsigned int failed = atomic_load(&spins->failed);
  atomic_store(&spins->failed, failed + 1); /* a lost count does no harm */
  if (failed >= PATIENCE && failed % SELDOM) return false;
  if (!spin(is_there, context, spins->microseconds * INT64_C(1000), helper)) return false;
  atomic_store(&spins->failed, 0);
  return true;
}

bool cow_spin_until(bool (*is_there)(void* context), void* context, cow_spins* spins) {
  return spin_if_worthwhile(is_there, context, spins, NULL);
}

struct timespec cow_time_after(int64_t microseconds) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  int64_t nanoseconds = at.tv_nsec + microseconds % 1000000 * 1000;
  at.tv_sec += (time_t)(microseconds / 1000000 + nanoseconds / 1000000000);
  at.tv_nsec = (long)(nanoseconds % 1000000000);
  return at;
}

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

static bool is_woken(void* given) {
  cow_sleeper* sleeper = given;
  if (pthread_mutex_trylock(&sleeper->lock)) return false;
  bool woken = sleeper->times > 0;
  if (woken) sleeper->times--;
  pthread_mutex_unlock(&sleeper->lock);
  return woken;
}

/* The sleeping thread returns behind the lock, so this touches nothing that it destroys. */
void cow_sleeper_wake(cow_sleeper* sleeper) {
  pthread_mutex_lock(&sleeper->lock);
  sleeper->times++;
  pthread_cond_signal(&sleeper->woken);
  pthread_mutex_unlock(&sleeper->lock);
}

#else

#include <errno.h>

bool cow_semaphore_init(cow_semaphore* semaphore) { return sem_init(semaphore, 0, 0) == 0; }

void cow_semaphore_post(cow_semaphore* semaphore) {
  int error = errno;
  sem_post(semaphore);
  errno = error;
}

void cow_semaphore_wait(cow_semaphore* semaphore) {
  while (sem_wait(semaphore) && errno == EINTR) continue;
}

bool cow_semaphore_wait_for(cow_semaphore* semaphore, int64_t microseconds) {
  struct timespec until = cow_time_after(microseconds);
  return sem_timedwait(semaphore, &until) == 0;
}

void cow_sleeper_init(cow_sleeper* sleeper) { sem_init(sleeper, 0, 0); }

void cow_sleeper_destroy(cow_sleeper* sleeper) { sem_destroy(sleeper); }

void cow_sleeper_sleep(cow_sleeper* sleeper) { cow_semaphore_wait(sleeper); }

static bool is_woken(void* sleeper) { return sem_trywait(sleeper) == 0; }

void cow_sleeper_wake(cow_sleeper* sleeper) { sem_post(sleeper); }

#endif

bool cow_sleeper_spin(cow_sleeper* sleeper, cow_spins* spins) {
  return spin_if_worthwhile(is_woken, sleeper, spins, atomic_load(&given_helper));
}
