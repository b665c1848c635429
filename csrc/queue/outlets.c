#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* clock_gettime */
#endif

#include "queue/outlets.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "queue/cancel.h"
#include "queue/deliver.h"
#include "base/handles.h"
#include "base/open_handles.h"
#include "queue/queue.h"
#include "queue/wake_fd.h"

/* Events of one call that may lie untaken; of progress the last one alone does. */
enum { MAX_EVENTS = 64 };

typedef struct outlet {
  int32_t handle;
  uint32_t round;
  bool offering; /* what comes lies here */
  bool watched;  /* there is a descriptor */
  bool running;  /* a call that returned at once has not ended */
  bool refused;  /* a callback of it returned false */
  bool closed;
  uint32_t epoch; /* of cancels, that the dispatch thread knows */
  unsigned users; /* calls that look at it, and the table */
  size_t taken;   /* pieces, since the dispatch thread last asked */
  size_t count;   /* items */
  cow_item* first;
  cow_item* last;
  cow_item* kept;  /* whose texts the host reads */
  cow_item* spare; /* for an end, which has to come also where memory is short */
  char* log;       /* of the call that has ended: for the host's log, or NULL */
  int32_t log_level;
  cow_request told; /* progress that the host has not seen: its event and callbacks */
  pthread_cond_t changed;
  cow_wake_fd wake;
} outlet;

/* One lock guards all outlets. It is held for a few instructions at a time and never across a
 * callback, and nothing is waited for but changes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static outlet* contexts[COW_HANDLE_SLOTS];
static outlet* models[COW_HANDLE_SLOTS];

/* ----------------------------------------- An outlet. With the lock held, all of these. */

static outlet** place_of(int32_t handle) {
  outlet** table = cow_handle_kind(handle) == COW_KIND_MODEL ? models : contexts;
  return &table[(uint32_t)handle % COW_HANDLE_SLOTS];
}

static outlet* find(int32_t handle) {
  outlet* it = *place_of(handle);
  return it && it->handle == handle ? it : NULL;
}

static void show(outlet* it) {
  bool tells = it->told.event.kind != COW_EVENT_NONE;
  cow_wake_fd_show(&it->wake, it->first || tells);
  pthread_cond_broadcast(&it->changed);
}

static void forget_progress(outlet* it) {
  free(it->told.event.text);
  it->told.event = (cow_event){.kind = COW_EVENT_NONE};
}

static void drop_items(outlet* it) {
  while (it->first) {
    cow_item* item = it->first;
    it->first = item->next;
    if (item->offer.is_end && !it->spare) {
      it->spare = item;
    } else {
      free(item);
    }
  }
  it->last = NULL;
  it->count = 0;
}

/* Leave an outlet; who is last takes it away. */
static void leave(outlet* it) {
  if (--it->users > 0) return;
  free(it->kept);
  free(it->spare);
  free(it->log);
  pthread_cond_destroy(&it->changed);
  free(it);
}

static void close_outlet(outlet* it) {
  it->closed = true;
  *place_of(it->handle) = NULL;
  drop_items(it);
  forget_progress(it);
  pthread_cond_broadcast(&it->changed);
  cow_wake_fd_close(&it->wake);
  leave(it);
}

/* That of an open handle, made if need be; NULL without memory. */
static outlet* find_or_make(int32_t handle) {
  outlet* it = find(handle);
  if (it) return it;
  outlet** place = place_of(handle);
  if (*place) close_outlet(*place); /* of an earlier handle, which is closing */
  it = calloc(1, sizeof *it);
  if (!it) return NULL;
  it->handle = handle;
  it->users = 1;
  pthread_cond_init(&it->changed, NULL);
  *place = it;
  return it;
}

/* False without memory: nothing has changed. */
static bool begin_round(outlet* it, bool offering) {
  if (!it->spare) it->spare = malloc(sizeof(cow_item) + COW_MESSAGE_SIZE + COW_DETAILS_SIZE);
  if (!it->spare) return false;
  if (++it->round == 0) it->round = 1;
  it->offering = offering;
  it->refused = false;
  drop_items(it);
  forget_progress(it);
  it->told.callbacks = (cow_callbacks){0};
  show(it);
  return true;
}

static cow_item* make_item(outlet* it, const cow_offer* offer, size_t texts) {
  if (!offer->is_end) return malloc(sizeof(cow_item) + texts);
  cow_item* spare = it->spare;
  it->spare = NULL;
  return spare;
}

/* A copy of an offer, texts and all, behind the others; false without memory. */
static bool append(outlet* it, const cow_offer* offer) {
  if (it->last && it->last->offer.is_end) return true; /* nothing comes after an end */
  size_t name = offer->name ? strlen(offer->name) + 1 : 1;
  cow_item* item = make_item(it, offer, offer->length + 1 + name);
  if (!item) return false;
  char* texts = (char*)(item + 1);
  *item = (cow_item){.offer = *offer};
  if (offer->length) memcpy(texts, offer->text, offer->length);
  texts[offer->length] = '\0';
  memcpy(texts + offer->length + 1, offer->name ? offer->name : "", name);
  item->offer.text = texts;
  item->offer.name = texts + offer->length + 1;
  if (it->last) {
    it->last->next = item;
  } else {
    it->first = item;
  }
  it->last = item;
  it->count++;
  show(it);
  return true;
}

static cow_item* pop(outlet* it) {
  cow_item* item = it->first;
  it->first = item->next;
  if (!it->first) it->last = NULL;
  it->count--;
  return item;
}

/* ---------------------------------------------------------------------- Hosts */

cow_mlx_status cow_outlets_open_round(cow_kind kind, int32_t handle, const cow_callbacks* callbacks,
                                      uint32_t epoch, uint32_t* round) {
  pthread_mutex_lock(&lock);
  cow_mlx_status status = COW_MLX_OK;
  outlet* it = NULL;
  if (!cow_is_open_handle(kind, handle)) {
    status = COW_MLX_EHANDLE;
  } else if (!(it = find_or_make(handle))) {
    status = COW_MLX_ENOMEM;
  } else if (it->running) {
    status = COW_MLX_ESTATE;
  } else if (!begin_round(it, true)) {
    status = COW_MLX_ENOMEM;
  } else {
    it->running = true;
    it->epoch = epoch;
    it->told.callbacks = *callbacks;
    *round = it->round;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

/* Let the host's callback see how far it is, without the lock. */
static void tell(outlet* it) {
  cow_request told = it->told;
  uint32_t round = it->round;
  it->told.event = (cow_event){.kind = COW_EVENT_NONE};
  show(it);
  pthread_mutex_unlock(&lock);
  bool go_on = cow_deliver(&told);
  free(told.event.text);
  pthread_mutex_lock(&lock);
  if (go_on || it->round != round) return;
  it->refused = true;
  cow_queue_wake();
}

/* Show the first item to its taker; one that is taken goes, unless it is an end. */
static void hand_over(outlet* it, cow_take_fn take, void* into, bool keep) {
  cow_offer* offer = &it->first->offer;
  if (!take(offer, into)) return;
  it->taken += offer->counts;
  offer->counts = false;
  if (!offer->is_end) {
    cow_item* item = pop(it);
    free(it->kept);
    it->kept = keep ? item : NULL;
    if (!keep) free(item);
  }
  show(it);
  cow_queue_wake(); /* there is room for more */
}

/* What a host has cancelled it is given no more of: the dispatch thread takes it back, and says
 * that it has ended. */
static cow_found find_first(const outlet* it) {
  if (it->closed) return COW_FOUND_CLOSED;
  if (!it->offering) return COW_FOUND_NONE;
  if (!it->first) return COW_FOUND_NOT_YET;
  if (it->first->offer.is_end || it->epoch == cow_cancel_epoch(it->handle)) return COW_FOUND_ITEM;
  if (!it->last->offer.is_end) return COW_FOUND_NOT_YET;
  /* It had ended before, and the dispatch thread does not look at it unless it is asked. */
  return it->first->offer.counts ? COW_FOUND_NONE : COW_FOUND_ITEM;
}

static struct timespec in(uint32_t milliseconds) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  at.tv_sec += milliseconds / 1000;
  at.tv_nsec += (long)(milliseconds % 1000) * 1000000;
  if (at.tv_nsec >= 1000000000) {
    at.tv_sec++;
    at.tv_nsec -= 1000000000;
  }
  return at;
}

/* False once the time is over. */
static bool wait_for_change(outlet* it, uint32_t milliseconds, const struct timespec* deadline) {
  if (milliseconds == 0) return false;
  if (milliseconds == UINT32_MAX) return pthread_cond_wait(&it->changed, &lock) == 0;
  return pthread_cond_timedwait(&it->changed, &lock, deadline) != ETIMEDOUT;
}

cow_found cow_outlets_take(cow_kind kind, int32_t handle, uint32_t milliseconds, cow_take_fn take,
                           void* into, bool keep) {
  struct timespec deadline = in(milliseconds);
  bool in_time = true;
  cow_found found = COW_FOUND_NONE;
  pthread_mutex_lock(&lock);
  outlet* it = cow_handle_kind(handle) == kind ? find(handle) : NULL;
  if (it) it->users++;
  while (it) {
    found = find_first(it);
    bool tells = it->told.event.kind != COW_EVENT_NONE && !it->closed;
    if (tells) {
      tell(it);
    } else if (found == COW_FOUND_ITEM) {
      hand_over(it, take, into, keep);
      break;
    } else if (found != COW_FOUND_NOT_YET || !in_time) {
      break;
    } else {
      in_time = wait_for_change(it, milliseconds, &deadline);
    }
  }
  if (it) leave(it);
  pthread_mutex_unlock(&lock);
  return found;
}

char* cow_outlets_take_log(int32_t handle, int32_t* level) {
  pthread_mutex_lock(&lock);
  outlet* it = find(handle);
  char* log = it ? it->log : NULL;
  if (log) *level = it->log_level;
  if (it) it->log = NULL;
  pthread_mutex_unlock(&lock);
  return log;
}

int cow_outlets_fd(cow_kind kind, int32_t handle) {
  pthread_mutex_lock(&lock);
  outlet* it = cow_handle_kind(handle) == kind ? find(handle) : NULL;
  int fd = it && it->offering ? cow_wake_fd_get(&it->wake) : -2;
  if (fd >= 0) {
    it->watched = true;
    show(it);
  }
  pthread_mutex_unlock(&lock);
  return fd;
}

bool cow_outlets_open_ended(int32_t handle) {
  static const cow_offer end = {.status = COW_MLX_OK, .is_end = true};
  pthread_mutex_lock(&lock);
  outlet* it = cow_is_open_handle(COW_KIND_MODEL, handle) ? find_or_make(handle) : NULL;
  bool opened = it && (it->offering || (begin_round(it, true) && append(it, &end)));
  pthread_mutex_unlock(&lock);
  return opened;
}

int32_t cow_outlets_next_model(int32_t handle) {
  int32_t next = 0;
  pthread_mutex_lock(&lock);
  for (uint32_t slot = (uint32_t)handle % COW_HANDLE_SLOTS + 1; !next && slot < COW_HANDLE_SLOTS;
       slot++) {
    if (models[slot]) next = models[slot]->handle;
  }
  pthread_mutex_unlock(&lock);
  return next;
}

bool cow_outlets_has_failed(int32_t handle) {
  pthread_mutex_lock(&lock);
  outlet* it = find(handle);
  bool failed = it && it->last && it->last->offer.is_end && it->last->offer.status < 0;
  pthread_mutex_unlock(&lock);
  return failed;
}

/* -------------------------------------------- The dispatch thread: calls that returned at once */

/* NULL if the call's outlet is closed, or has begun another round. With the lock held. */
static outlet* outlet_of(const cow_request* request) {
  outlet* it = find(request->model ? request->model : request->context);
  return it && it->round == request->round ? it : NULL;
}

static bool append_event(outlet* it, const cow_event* event) {
  bool is_end = event->chat_kind == COW_MLX_EVENT_END;
  cow_offer offer = {.status = is_end ? COW_MLX_DONE : COW_MLX_OK,
                     .is_end = is_end,
                     .event_kind = event->chat_kind,
                     .finish = event->finish,
                     .text = event->text,
                     .length = event->length,
                     .name = event->name};
  return append(it, &offer);
}

void cow_outlets_post(const cow_request* request, const cow_event* event) {
  char* text = event->text; /* the outlet's own, or of nobody */
  pthread_mutex_lock(&lock);
  outlet* it = outlet_of(request);
  if (it && event->kind == COW_EVENT_CHAT) {
    it->refused |= !append_event(it, event);
    if (event->chat_kind == COW_MLX_EVENT_END) it->running = false; /* the host may begin another */
  } else if (it) {
    forget_progress(it);
    it->told.event = *event;
    it->told.event.name = text = NULL;
    show(it);
  }
  pthread_mutex_unlock(&lock);
  free(text);
  free(event->name);
}

bool cow_outlets_can_post(const cow_request* request) {
  pthread_mutex_lock(&lock);
  outlet* it = outlet_of(request);
  bool ended = it && it->last && it->last->offer.is_end;
  bool can = !it || ended || (it->count < MAX_EVENTS && !it->refused);
  pthread_mutex_unlock(&lock);
  return can;
}

bool cow_outlets_refused(const cow_request* request) {
  pthread_mutex_lock(&lock);
  outlet* it = outlet_of(request);
  bool refused = it && it->refused;
  pthread_mutex_unlock(&lock);
  return refused;
}

void cow_outlets_end(cow_request* request, cow_mlx_status status) {
  cow_offer end = {.status = status, .is_end = true};
  if (status < 0) {
    end.text = request->message;
    end.length = strlen(request->message);
    end.name = request->details;
  }
  pthread_mutex_lock(&lock);
  outlet* it = outlet_of(request);
  if (it) {
    it->running = false;
    free(it->log);
    it->log = request->log_message;
    it->log_level = request->log_level;
    request->log_message = NULL;
    if (status == COW_MLX_ECANCELED) drop_items(it);
    if (status < 0 || request->model) append(it, &end);
    show(it);
  }
  pthread_mutex_unlock(&lock);
}

/* ------------------------------------------- The dispatch thread: generations of contexts */

uint32_t cow_outlets_begin(int32_t handle, uint32_t round, uint32_t epoch) {
  uint32_t begun = 0;
  pthread_mutex_lock(&lock);
  outlet* it = find(handle);
  if (it && round) {
    begun = it->round == round ? round : 0;
  } else if (it && !it->running && begin_round(it, it->watched)) {
    begun = it->watched ? it->round : 0;
    it->epoch = epoch;
  }
  pthread_mutex_unlock(&lock);
  return begun;
}

void cow_outlets_clear(int32_t handle) {
  pthread_mutex_lock(&lock);
  outlet* it = find(handle);
  if (it && !it->running) {
    drop_items(it);
    it->offering = false;
    it->round++;
    show(it);
  }
  pthread_mutex_unlock(&lock);
}

int cow_outlets_watch(int32_t handle) {
  pthread_mutex_lock(&lock);
  outlet* it = find_or_make(handle);
  int fd = it ? cow_wake_fd_get(&it->wake) : -1;
  if (fd < 0) {
    fd = it ? -errno : -ENOMEM;
  } else {
    it->watched = true;
    show(it);
  }
  pthread_mutex_unlock(&lock);
  return fd;
}

bool cow_outlets_offer(int32_t handle, uint32_t round, const cow_offer* offer) {
  pthread_mutex_lock(&lock);
  outlet* it = find(handle);
  bool offered = !it || it->round != round || append(it, offer);
  pthread_mutex_unlock(&lock);
  return offered;
}

size_t cow_outlets_taken(int32_t handle, bool back) {
  size_t taken = 0;
  pthread_mutex_lock(&lock);
  outlet* it = find(handle);
  if (it) {
    taken = it->taken;
    it->taken = 0;
    if (back) {
      it->epoch = cow_cancel_epoch(handle);
      drop_items(it);
      show(it);
    }
  }
  pthread_mutex_unlock(&lock);
  return taken;
}

void cow_outlets_close(int32_t handle) {
  pthread_mutex_lock(&lock);
  outlet* it = find(handle); /* other kinds have none */
  if (it) close_outlet(it);
  pthread_mutex_unlock(&lock);
}
