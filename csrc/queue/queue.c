#include "queue/queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "queue/logits.h"
#include "queue/semaphores.h"

#if ATOMIC_BOOL_LOCK_FREE != 2
#error "a signal handler needs atomics without locks"
#endif

/* One lock guards the requests. It is held for a few instructions at a time, and never across a
 * callback or a system call: a thread woken by one would wait for the lock. The atomics do not need
 * it, since a signal handler wakes too. */
static struct {
  pthread_mutex_t lock;
  cow_request* first;
  cow_request* last;
  atomic_bool open;   /* written with the lock held, as the next one is */
  atomic_int waiting; /* requests from the first to the last */
  atomic_bool
      work_pending; /* a call that runs may continue, since the dispatch thread last slept */
  atomic_bool release_pending; /* there are objects to release, before it sleeps the next time */
  atomic_bool asleep;          /* the thread that sets it to false posts */
  bool usable;                 /* there is a semaphore */
  cow_semaphore posted;
  pthread_once_t ready;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .ready = PTHREAD_ONCE_INIT};

/* Wake the dispatch thread if it sleeps. */
static void rouse(void) {
  if (atomic_exchange(&queue.asleep, false)) cow_semaphore_post(&queue.posted);
}

static bool deliver_chat(const cow_callbacks* to, const cow_event* event) {
  cow_mlx_event chat = {.struct_size = sizeof chat,
                        .kind = event->chat_kind,
                        .text = event->text,
                        .length = event->length,
                        .name = event->name ? event->name : "",
                        .finish = event->finish};
  return to->event(&chat, to->event_data);
}

/* The engine refuses arrays that the host leaves out. */
static bool ask_batch(const cow_callbacks* to, cow_batch* batch) {
  batch->given = to->batch(batch->step, batch->arrays, batch->count, to->batch_data);
  return true;
}

bool cow_queue_deliver(const cow_callbacks* to, const cow_event* event, cow_batch* batch) {
  switch (event->kind) {
    case COW_EVENT_PROGRESS:
      return !to->progress || to->progress(event->fraction, event->text, to->progress_data);
    case COW_EVENT_PROMPT:
      return !to->prompt || to->prompt(event->processed, event->total, to->prompt_data);
    case COW_EVENT_TEXT:
      return !to->text || to->text(event->text, event->length, to->text_data);
    case COW_EVENT_CHAT:
      return !to->event || deliver_chat(to, event);
    case COW_EVENT_TRAINING:
      return !to->training || to->training(&event->training, to->training_data);
    case COW_EVENT_BATCH:
      return ask_batch(to, batch);
    case COW_EVENT_LOGITS:
      return cow_logits_ask(event->logits);
    case COW_EVENT_NONE:
      break;
  }
  return true;
}

static void deliver(cow_request* request) {
  bool continues = cow_queue_deliver(&request->callbacks, &request->event, request->batch);
  free(request->event.text);
  free(request->event.name);
  pthread_mutex_lock(&queue.lock);
  request->event.kind = COW_EVENT_NONE;
  if (!continues) request->refused = true;
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
    queue.waiting++;
  }
  pthread_mutex_unlock(&queue.lock);
  if (open) rouse();
  return open;
}

bool cow_queue_send(cow_request* request) { return append(request, NULL); }

/* Microseconds for which threads spin, and callers between the events of a training: a step of a
 * small network takes longer than an answer. */
enum { SPIN = 100, SPIN_FOR_STEP = 400 };

/* Wait for the answer or an event. One caller at a time spins: more would take processors from the
 * threads that they wait for. `spins` null: none does. */
static void await(cow_sleeper* sleeper, cow_spins* spins) {
  static atomic_bool spins_one;
  if (!spins || atomic_exchange(&spins_one, true)) {
    cow_sleeper_sleep(sleeper);
    return;
  }
  bool came = cow_sleeper_spin(sleeper, spins);
  atomic_store(&spins_one, false);
  if (!came) cow_sleeper_sleep(sleeper);
}

bool cow_queue_submit(cow_request* request) {
  static cow_spins first = {.microseconds = SPIN};
  cow_spins step = {.microseconds = SPIN_FOR_STEP}, *spins = &first;
  cow_sleeper sleeper;
  cow_sleeper_init(&sleeper);
  bool open = append(request, &sleeper);
  while (open) {
    /* Woken once for every event and once for the end, which comes last. The event stays as it is
     * until this thread has delivered it. */
    await(&sleeper, spins);
    cow_event_kind kind = request->event.kind;
    if (kind != COW_EVENT_NONE) {
      spins = kind == COW_EVENT_TRAINING || kind == COW_EVENT_BATCH ? &step : NULL;
      deliver(request);
    } else if (request->done) {
      break;
    }
  }
  cow_sleeper_destroy(&sleeper);
  return open;
}

void cow_queue_wake(void) {
  atomic_store(&queue.work_pending, true);
  rouse();
}

bool cow_queue_was_woken(void) { return atomic_exchange(&queue.work_pending, false); }

void cow_queue_wake_to_release(void) {
  atomic_store(&queue.release_pending, true);
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
  if (request->sink) {
    request->sink->end(request, status);
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
  queue.waiting = 0;
  pthread_mutex_unlock(&queue.lock);
  while (waiting) {
    cow_request* request = waiting;
    waiting = request->next; /* the caller may free the request from here on */
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
    queue.waiting--;
  }
  pthread_mutex_unlock(&queue.lock);
  if (request) atomic_store(&queue.release_pending, false); /* what runs it releases first */
  return request;
}

static bool has_work(void* unused) {
  (void)unused;
  return atomic_load(&queue.work_pending) || atomic_load(&queue.waiting) > 0;
}

/* Sleep until a thread posts; false if the time is over. */
static bool doze(int64_t microseconds) {
  if (microseconds >= 0) return cow_semaphore_wait_for(&queue.posted, microseconds);
  cow_semaphore_wait(&queue.posted);
  return true;
}

/* A request or wake that comes after `asleep` was set posts; an earlier one is seen here. Objects
 * to release do not end the spin: the next request may come before its end. */
bool cow_queue_sleep(int64_t microseconds) {
  static cow_spins spins = {.microseconds = SPIN};
  if (cow_spin_until(has_work, NULL, &spins)) return cow_queue_was_woken();
  for (;;) {
    atomic_store(&queue.asleep, true);
    bool work = has_work(NULL) || atomic_load(&queue.release_pending);
    bool woken = !work && doze(microseconds);
    if (woken) continue;
    if (!atomic_exchange(&queue.asleep, false)) cow_semaphore_wait(&queue.posted);
    bool releases = atomic_exchange(&queue.release_pending, false);
    return cow_queue_was_woken() || releases || !work;
  }
}

void cow_queue_post(cow_request* request, const cow_event* event) {
  if (request->sink) {
    request->sink->post(request, event);
    return;
  }
  pthread_mutex_lock(&queue.lock);
  request->event = *event;
  pthread_mutex_unlock(&queue.lock);
  cow_sleeper_wake(request->waiter);
}

static bool ends_linger(void* request) {
  return atomic_load(&queue.waiting) > 0 || cow_queue_can_post(request) ||
         cow_queue_refused(request);
}

void cow_queue_linger(cow_request* request) {
  static cow_spins spins = {.microseconds = SPIN};
  if (!request->sink) cow_spin_until(ends_linger, request, &spins);
}

bool cow_queue_can_post(cow_request* request) {
  if (request->sink) return request->sink->can_post(request);
  pthread_mutex_lock(&queue.lock);
  bool can = request->event.kind == COW_EVENT_NONE && !request->refused;
  pthread_mutex_unlock(&queue.lock);
  return can;
}

bool cow_queue_refused(cow_request* request) {
  if (request->sink) return request->sink->refused(request);
  pthread_mutex_lock(&queue.lock);
  bool refused = request->refused;
  pthread_mutex_unlock(&queue.lock);
  return refused;
}
