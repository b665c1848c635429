#define _GNU_SOURCE

#include "workers.h"

#include <erl_nif.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

enum { MOST_THREADS = 64, IDLE_SECONDS = 5, STACK = 1 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t added = PTHREAD_COND_INITIALIZER;
static cow_task *first, **end = &first;
static int threads, idle, waiting;

/* Threads of a node take no signals, as those of its emulator. */
static bool start(void* (*body)(void*), void* argument) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  int failure = pthread_create(&thread, &attributes, body, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return failure == 0;
}

static cow_task* take(void) {
  cow_task* task = first;
  first = task->next;
  if (!first) end = &first;
  waiting--;
  return task;
}

/* Wait for work; false after a time without any. */
static bool wait_for_work(void) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += IDLE_SECONDS;
  idle++;
  while (!first && pthread_cond_timedwait(&added, &lock, &until) == 0) continue;
  idle--;
  return first != NULL;
}

static void* work(void* unused) {
  (void)unused;
  pthread_mutex_lock(&lock);
  while (first || wait_for_work()) {
    cow_task* task = take();
    pthread_mutex_unlock(&lock);
    task->run(task);
    pthread_mutex_lock(&lock);
  }
  threads--;
  pthread_mutex_unlock(&lock);
  return NULL;
}

static bool add(cow_task* task, bool anyway) {
  pthread_mutex_lock(&lock);
  if (waiting + 1 > idle && threads < MOST_THREADS && start(work, NULL)) threads++;
  bool runs = threads > 0;
  if (runs || anyway) {
    task->next = NULL;
    *end = task;
    end = &task->next;
    waiting++;
    pthread_cond_signal(&added);
  }
  pthread_mutex_unlock(&lock);
  return runs;
}

bool cow_workers_add(cow_task* task) { return add(task, false); }

void cow_workers_leave(cow_task* task) { add(task, true); }

static void* run_alone(void* argument) {
  cow_task* task = argument;
  task->run(task);
  return NULL;
}

bool cow_workers_start(cow_task* task) { return start(run_alone, task); }
