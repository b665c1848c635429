#include "queue/queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/details.h"
#include "queue/outlets.h"
#include "queue/sleeper.h"
#include "queue/wake_semaphore.h"

#if ATOMIC_BOOL_LOCK_FREE != 2
#error "a signal handler needs atomics without locks"
#endif

/* One lock guards the requests. It is held for a few instructions at a time, and never across a
 * callback or a call of the system: who is woken by one would wait for it. The atomics need it not:
 * a signal handler wakes too. */
static struct {
  pthread_mutex_t lock;
  cow_request* first;
  cow_request* last;
  atomic_bool open;    /* written with the lock held */
  atomic_bool stirred; /* work under way may go on, since the dispatch thread last slept */
  atomic_bool asleep;  /* whoever sets it to false posts */
  bool usable;         /* there is a semaphore */
  cow_semaphore posted;
  pthread_once_t ready;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .ready = PTHREAD_ONCE_INIT};

/* Wake the dispatch thread if it sleeps. */
static void rouse(void) {
  if (atomic_exchange(&queue.asleep, false)) cow_semaphore_post(&queue.posted);
}

/* Let the host's callback see the event. */
static void deliver(cow_request* request) {
  bool go_on = request->deliver(request);
  free(request->event.text);
  free(request->event.name);
  pthread_mutex_lock(&queue.lock);
  request->event.kind = COW_EVENT_NONE;
  if (!go_on) request->refused = true;
  pthread_mutex_unlock(&queue.lock);
  cow_queue_wake();
}

/* Put a request behind the others; false if the queue is closed. */
static bool append(cow_request* request, cow_sleeper* waiter) {
  request->waiter = waiter;
  request->next = NULL;
  request->event.kind = COW_EVENT_NONE;
  request->refused = false;
  request->done = false;
  pthread_mutex_lock(&queue.lock);
  bool open = queue.open;
  if (open) {
    if (queue.last) {
      queue.last->next = request;
    } else {
      queue.first = request;
    }
    queue.last = request;
  }
  pthread_mutex_unlock(&queue.lock);
  if (open) rouse();
  return open;
}

bool cow_queue_send(cow_request* request) { return append(request, NULL); }

bool cow_queue_submit(cow_request* request) {
  cow_sleeper sleeper;
  cow_sleeper_init(&sleeper);
  bool open = append(request, &sleeper);
  while (open) {
    /* Woken once for every event and once for the end, which comes last. Nobody writes what was
     * written before a wake until it is seen to. */
    cow_sleeper_sleep(&sleeper);
    if (request->event.kind != COW_EVENT_NONE) {
      deliver(request);
    } else if (request->done) {
      break;
    }
  }
  cow_sleeper_destroy(&sleeper);
  return open;
}

void cow_queue_wake(void) {
  atomic_store(&queue.stirred, true);
  rouse();
}

bool cow_queue_is_open(void) { return atomic_load(&queue.open); }

static void make_ready(void) { queue.usable = cow_semaphore_init(&queue.posted); }

bool cow_queue_prepare(void) {
  pthread_once(&queue.ready, make_ready);
  return queue.usable;
}

void cow_queue_open(void) {
  cow_queue_prepare();
  pthread_mutex_lock(&queue.lock);
  queue.open = true;
  pthread_mutex_unlock(&queue.lock);
}

void cow_queue_finish(cow_request* request, cow_mlx_status status) {
  if (request->release) { /* nobody waits */
    cow_outlets_end(request, status);
    request->release(request);
    return;
  }
  request->status = status;
  request->done = true;
  if (request->waiter) cow_sleeper_wake(request->waiter);
}

void cow_queue_close(void) {
  pthread_mutex_lock(&queue.lock);
  queue.open = false;
  cow_request* waiting = queue.first;
  queue.first = queue.last = NULL;
  pthread_mutex_unlock(&queue.lock);
  while (waiting) {
    cow_request* request = waiting;
    waiting = request->next; /* which its caller frees */
    snprintf(request->message, COW_MESSAGE_SIZE, "%s: the runtime was stopped", request->operation);
    cow_details_write(request->details, COW_DETAILS_SIZE, request->operation,
                      COW_REASON_runtime_stopped, NULL);
    cow_queue_finish(request, COW_MLX_ECANCELED);
  }
}

cow_request* cow_queue_take(void) {
  pthread_mutex_lock(&queue.lock);
  cow_request* request = queue.first;
  if (request) {
    queue.first = request->next;
    if (!queue.first) queue.last = NULL;
  }
  pthread_mutex_unlock(&queue.lock);
  return request;
}

static bool has_work(void) {
  if (atomic_load(&queue.stirred)) return true;
  pthread_mutex_lock(&queue.lock);
  bool has = queue.first != NULL;
  pthread_mutex_unlock(&queue.lock);
  return has;
}

/* Sleep until somebody posts; false if the time is over. */
static bool doze(int64_t microseconds) {
  if (microseconds >= 0) return cow_semaphore_wait_for(&queue.posted, microseconds);
  cow_semaphore_wait(&queue.posted);
  return true;
}

/* What comes after `asleep` was set posts, and what came before is seen here. */
bool cow_queue_sleep(int64_t microseconds) {
  for (;;) {
    atomic_store(&queue.asleep, true);
    bool work = has_work();
    bool woken = !work && doze(microseconds);
    if (woken) continue;
    if (!atomic_exchange(&queue.asleep, false)) cow_semaphore_wait(&queue.posted);
    return atomic_exchange(&queue.stirred, false) || !work;
  }
}

void cow_queue_post(cow_request* request, const cow_event* event) {
  if (request->release) {
    cow_outlets_post(request, event);
    return;
  }
  pthread_mutex_lock(&queue.lock);
  request->event = *event;
  pthread_mutex_unlock(&queue.lock);
  cow_sleeper_wake(request->waiter);
}

bool cow_queue_can_post(cow_request* request) {
  if (request->release) return cow_outlets_can_post(request);
  pthread_mutex_lock(&queue.lock);
  bool can = request->event.kind == COW_EVENT_NONE && !request->refused;
  pthread_mutex_unlock(&queue.lock);
  return can;
}

bool cow_queue_refused(cow_request* request) {
  if (request->release) return cow_outlets_refused(request);
  pthread_mutex_lock(&queue.lock);
  bool refused = request->refused;
  pthread_mutex_unlock(&queue.lock);
  return refused;
}
