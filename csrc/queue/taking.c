#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* struct timespec */
#endif

#include "queue/taking.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/handles.h"
#include "queue/outlet.h"
#include "queue/queue.h"
#include "queue/semaphores.h"

/* Deliver progress, then logits, to the host's callback, without the lock. */
static void deliver_progress(cow_outlet* it) {
  cow_event* first = it->progress.kind ? &it->progress : &it->asked;
  cow_event event = *first;
  cow_callbacks callbacks = it->callbacks;
  uint32_t round = it->round;
  *first = (cow_event){.kind = COW_EVENT_NONE};
  cow_outlet_show(it);
  pthread_mutex_unlock(&cow_outlet_lock);
  bool continues = cow_queue_deliver(&callbacks, &event, NULL);
  free(event.text);
  pthread_mutex_lock(&cow_outlet_lock);
  if (!continues && it->round == round) cow_outlet_refuse(it);
  if (!continues || event.kind == COW_EVENT_LOGITS) cow_queue_wake();
}

/* The item whose texts a thread reads: until it takes another one, or ends. Other threads may free
 * the context meanwhile. */
static pthread_key_t texts_key;
static bool has_key;
static pthread_once_t made_key = PTHREAD_ONCE_INIT;

static void make_key(void) { has_key = pthread_key_create(&texts_key, free) == 0; }

static void keep_texts(cow_outlet* it, cow_item* taken) {
  pthread_once(&made_key, make_key);
  cow_item* before = has_key ? pthread_getspecific(texts_key) : NULL;
  if (has_key && pthread_setspecific(texts_key, taken) == 0) {
    free(before);
    return;
  }
  free(it->kept);
  it->kept = taken;
}

/* Show the first item to its taker. An item that is taken leaves, unless it is an end. */
static void hand_over(cow_outlet* it, cow_take_fn take, void* into, bool keep) {
  cow_offer* offer = &it->first->offer;
  if (!take(offer, into)) return;
  it->taken += offer->counts;
  offer->counts = false;
  if (!offer->is_end) {
    cow_item* first = it->first;
    it->first = first->next;
    if (!it->first) it->last = NULL;
    it->count--;
    if (keep) {
      keep_texts(it, first);
    } else {
      free(first);
    }
  }
  cow_outlet_show(it);
  cow_queue_wake(); /* there is room for more */
}

/* After a cancel the host gets no further pieces: the dispatch thread takes them back, and offers
 * the end. Events of a chat that has ended stay, and pieces that the cache could not drop. */
static cow_found find_first(const cow_outlet* it) {
  if (it->state == COW_OUTLET_CLOSED) return COW_FOUND_CLOSED;
  if (it->state == COW_OUTLET_IDLE) return COW_FOUND_NONE;
  if (!it->first) return COW_FOUND_NOT_YET;
  if (it->first->offer.is_end || it->cancels == cow_handle_cancels(it->handle)) {
    return COW_FOUND_ITEM;
  }
  if (!cow_outlet_has_ended(it)) return COW_FOUND_NOT_YET;
  bool stays = !it->first->offer.counts || it->last->offer.finish == COW_MLX_FINISH_CANCELED;
  return stays ? COW_FOUND_ITEM : COW_FOUND_NOT_YET;
}

/* False once the time is over. */
static bool wait_for_change(cow_outlet* it, uint32_t milliseconds,
                            const struct timespec* deadline) {
  if (milliseconds == 0) return false;
  if (milliseconds == UINT32_MAX) return pthread_cond_wait(&it->changed, &cow_outlet_lock) == 0;
  return pthread_cond_timedwait(&it->changed, &cow_outlet_lock, deadline) != ETIMEDOUT;
}

static bool is_over(uint32_t milliseconds, const struct timespec* deadline) {
  if (milliseconds == UINT32_MAX) return false;
  struct timespec now = cow_time_after(0);
  if (now.tv_sec != deadline->tv_sec) return now.tv_sec > deadline->tv_sec;
  return now.tv_nsec >= deadline->tv_nsec;
}

cow_found cow_outlets_look(cow_kind kind, int32_t handle, cow_take_fn take, void* into, bool keep) {
  cow_found found = COW_FOUND_NONE;
  if (cow_handle_kind(handle) != kind) return found;
  cow_outlet* it = cow_outlet_lock_and_find(handle);
  if (it) found = cow_outlet_has_progress(it) ? COW_FOUND_CALLBACK : find_first(it);
  if (found == COW_FOUND_ITEM) hand_over(it, take, into, keep);
  pthread_mutex_unlock(&cow_outlet_lock);
  return found;
}

cow_found cow_outlets_take(cow_kind kind, int32_t handle, uint32_t milliseconds, cow_take_fn take,
                           void* into, bool keep) {
  struct timespec deadline = cow_time_after((int64_t)milliseconds * 1000);
  bool in_time = true, calls_back = true; /* once more when the time is over */
  cow_found found = COW_FOUND_NONE;
  if (cow_handle_kind(handle) != kind) return found;
  cow_outlet* it = cow_outlet_lock_and_find(handle);
  if (it) it->users++;
  while (it) {
    found = find_first(it);
    if (cow_outlet_has_progress(it) && calls_back) {
      deliver_progress(it);
      in_time = in_time && !is_over(milliseconds, &deadline);
      calls_back = in_time;
    } else if (found == COW_FOUND_ITEM) {
      hand_over(it, take, into, keep);
      break;
    } else if (found != COW_FOUND_NOT_YET || !in_time) {
      break;
    } else {
      in_time = wait_for_change(it, milliseconds, &deadline);
    }
  }
  if (it) cow_outlet_leave(it);
  pthread_mutex_unlock(&cow_outlet_lock);
  return found;
}

char* cow_outlets_take_log(int32_t handle, int32_t* level) {
  cow_outlet* it = cow_outlet_lock_and_find(handle);
  char* log = it ? it->log : NULL;
  if (log) *level = it->log_level;
  if (it) it->log = NULL;
  pthread_mutex_unlock(&cow_outlet_lock);
  return log;
}

int cow_outlets_fd(cow_kind kind, int32_t handle) {
  if (cow_handle_kind(handle) != kind) return -2;
  cow_outlet* it = cow_outlet_lock_and_find(handle);
  int fd = it && it->state != COW_OUTLET_IDLE ? cow_wake_fd_get(&it->wake) : -2;
  if (fd >= 0) cow_outlet_show(it);
  pthread_mutex_unlock(&cow_outlet_lock);
  return fd;
}
