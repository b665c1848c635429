#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* struct timespec */
#endif

#include "queue/outlets.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/handles.h"
#include "queue/logits.h"
#include "queue/queue.h"
#include "queue/semaphores.h"
#include "queue/wake_fd.h"

/* Events of one call that may lie untaken; of progress only the last one lies there. */
enum { MAX_EVENTS = 64 };

/* First come, first taken. An end stays. */
typedef struct item {
  struct item* next;
  cow_offer offer; /* its texts follow */
} item;

typedef struct outlet {
  int32_t handle;
  uint32_t round;
  enum {
    IDLE,     /* nothing comes here: each piece is asked for */
    OFFERING, /* results come here */
    RUNNING,  /* likewise, of a call that returned at once and has not ended */
    REFUSED,  /* likewise, and a callback of the call returned false */
    CLOSED    /* out of the table; the last user frees it */
  } state;
  uint32_t cancels;  /* of the handle, as the dispatch thread has seen them */
  unsigned users;    /* calls that look at it, and the table */
  bool lacks_memory; /* for an event, so the call was refused */
  size_t taken;      /* pieces, since the dispatch thread last asked */
  size_t count;      /* items */
  item* first;
  item* last;
  item* kept;  /* whose texts the host reads, if its thread has no place for it */
  item* spare; /* for an end, which needs a place even when memory is short */
  char* log;   /* of the call that has ended: for the host's log, or NULL */
  int32_t log_level;
  cow_event progress; /* that the host has not seen, or of kind NONE */
  cow_event asked;    /* likewise, logits */
  cow_callbacks callbacks;
  pthread_cond_t changed;
  cow_wake_fd wake;
} outlet;

/* One lock guards all outlets. It is held for a few instructions at a time and never across a
 * callback; threads that hold it wait only for changes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static outlet* contexts[COW_HANDLE_SLOTS];
static outlet* models[COW_HANDLE_SLOTS];

/* ------------------------------------------------- An outlet, with the lock held */

static outlet** place_of(int32_t handle) {
  outlet** table = cow_handle_kind(handle) == COW_KIND_MODEL ? models : contexts;
  return &table[(uint32_t)handle % COW_HANDLE_SLOTS];
}

static outlet* find(int32_t handle) {
  outlet* it = *place_of(handle);
  return it && it->handle == handle ? it : NULL;
}

/* Takes the lock, which the caller lets go of. */
static outlet* lock_and_find(int32_t handle) {
  pthread_mutex_lock(&lock);
  return find(handle);
}

static bool has_progress(const outlet* it) { return it->progress.kind || it->asked.kind; }

static bool runs(const outlet* it) { return it->state == RUNNING || it->state == REFUSED; }

static bool has_ended(const outlet* it) { return it->last && it->last->offer.is_end; }

static void show(outlet* it) {
  cow_wake_fd_show(&it->wake, it->first || has_progress(it));
  pthread_cond_broadcast(&it->changed);
}

static void drop_progress(outlet* it) {
  free(it->progress.text);
  it->progress = (cow_event){.kind = COW_EVENT_NONE};
}

static void drop_items(outlet* it) {
  while (it->first) {
    item* dropped = it->first;
    it->first = dropped->next;
    if (dropped->offer.is_end && !it->spare) {
      it->spare = dropped;
    } else {
      free(dropped);
    }
  }
  it->last = NULL;
  it->count = 0;
  cow_logits_let_go(it->asked.logits);
  it->asked = (cow_event){.kind = COW_EVENT_NONE};
}

/* Leave an outlet; the last user frees it. */
static void leave(outlet* it) {
  if (--it->users > 0) return;
  free(it->kept);
  free(it->spare);
  free(it->log);
  pthread_cond_destroy(&it->changed);
  free(it);
}

static void close_outlet(outlet* it) {
  it->state = CLOSED;
  *place_of(it->handle) = NULL;
  drop_items(it);
  drop_progress(it);
  pthread_cond_broadcast(&it->changed);
  cow_wake_fd_close(&it->wake);
  leave(it);
}

/* The outlet of an open handle, made if need be; NULL without memory. */
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

/* Any state -> IDLE, OFFERING or RUNNING. False without memory: nothing has changed. */
static bool begin_round(outlet* it, int state) {
  if (!it->spare) it->spare = malloc(sizeof(item) + COW_MESSAGE_SIZE + COW_DETAILS_SIZE);
  if (!it->spare) return false;
  if (++it->round == 0) it->round = 1;
  it->state = state;
  it->lacks_memory = false;
  drop_items(it);
  drop_progress(it);
  it->callbacks = (cow_callbacks){0};
  show(it);
  return true;
}

/* RUNNING -> REFUSED. */
static void refuse(outlet* it) {
  if (it->state == RUNNING) it->state = REFUSED;
}

/* RUNNING, REFUSED -> OFFERING. */
static void end_call(outlet* it) {
  if (runs(it)) it->state = OFFERING;
}

static item* make_item(outlet* it, const cow_offer* offer, size_t texts) {
  if (!offer->is_end) return malloc(sizeof(item) + texts);
  item* spare = it->spare;
  it->spare = NULL;
  return spare;
}

/* Put a copy of an offer, texts and all, behind the others; false without memory. */
static bool append(outlet* it, const cow_offer* offer) {
  if (has_ended(it)) return true; /* nothing comes after an end */
  size_t name = offer->name ? strlen(offer->name) + 1 : 1;
  item* added = make_item(it, offer, offer->length + 1 + name);
  if (!added) return false;
  char* texts = (char*)(added + 1);
  *added = (item){.offer = *offer};
  if (offer->length) memcpy(texts, offer->text, offer->length);
  texts[offer->length] = '\0';
  memcpy(texts + offer->length + 1, offer->name ? offer->name : "", name);
  added->offer.text = texts;
  added->offer.name = texts + offer->length + 1;
  if (it->last) {
    it->last->next = added;
  } else {
    it->first = added;
  }
  it->last = added;
  it->count++;
  show(it);
  return true;
}

/* ---------------------------------------------------------------------- Hosts */

cow_mlx_status cow_outlets_open_round(cow_kind kind, int32_t handle, const cow_callbacks* callbacks,
                                      uint32_t cancels, uint32_t* round) {
  cow_mlx_status status = COW_MLX_ENOMEM;
  pthread_mutex_lock(&lock);
  outlet* it = cow_handle_is_open(kind, handle) ? find_or_make(handle) : NULL;
  if (!cow_handle_is_open(kind, handle)) {
    status = COW_MLX_EHANDLE;
  } else if (it && runs(it)) {
    status = COW_MLX_ESTATE;
  } else if (it && begin_round(it, RUNNING)) {
    it->cancels = cancels;
    it->callbacks = *callbacks;
    *round = it->round;
    status = COW_MLX_OK;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

/* Deliver progress, then logits, to the host's callback, without the lock. */
static void deliver_progress(outlet* it) {
  cow_event* first = it->progress.kind ? &it->progress : &it->asked;
  cow_event event = *first;
  cow_callbacks callbacks = it->callbacks;
  uint32_t round = it->round;
  *first = (cow_event){.kind = COW_EVENT_NONE};
  show(it);
  pthread_mutex_unlock(&lock);
  bool continues = cow_queue_deliver(&callbacks, &event, NULL);
  free(event.text);
  pthread_mutex_lock(&lock);
  if (!continues && it->round == round) refuse(it);
  if (!continues || event.kind == COW_EVENT_LOGITS) cow_queue_wake();
}

/* The item whose texts a thread reads: until it takes another one, or ends. Other threads may free
 * the context meanwhile. */
static pthread_key_t texts_key;
static bool has_key;
static pthread_once_t made_key = PTHREAD_ONCE_INIT;

static void make_key(void) { has_key = pthread_key_create(&texts_key, free) == 0; }

static void keep_texts(outlet* it, item* taken) {
  pthread_once(&made_key, make_key);
  item* before = has_key ? pthread_getspecific(texts_key) : NULL;
  if (has_key && pthread_setspecific(texts_key, taken) == 0) {
    free(before);
    return;
  }
  free(it->kept);
  it->kept = taken;
}

/* Show the first item to its taker. An item that is taken leaves, unless it is an end. */
static void hand_over(outlet* it, cow_take_fn take, void* into, bool keep) {
  cow_offer* offer = &it->first->offer;
  if (!take(offer, into)) return;
  it->taken += offer->counts;
  offer->counts = false;
  if (!offer->is_end) {
    item* first = it->first;
    it->first = first->next;
    if (!it->first) it->last = NULL;
    it->count--;
    if (keep) {
      keep_texts(it, first);
    } else {
      free(first);
    }
  }
  show(it);
  cow_queue_wake(); /* there is room for more */
}

/* After a cancel the host gets no further pieces: the dispatch thread takes them back, and offers
 * the end. Events of a chat that has ended stay, and pieces that the cache could not drop. */
static cow_found find_first(const outlet* it) {
  if (it->state == CLOSED) return COW_FOUND_CLOSED;
  if (it->state == IDLE) return COW_FOUND_NONE;
  if (!it->first) return COW_FOUND_NOT_YET;
  if (it->first->offer.is_end || it->cancels == cow_handle_cancels(it->handle)) {
    return COW_FOUND_ITEM;
  }
  if (!has_ended(it)) return COW_FOUND_NOT_YET;
  bool stays = !it->first->offer.counts || it->last->offer.finish == COW_MLX_FINISH_CANCELED;
  return stays ? COW_FOUND_ITEM : COW_FOUND_NOT_YET;
}

/* False once the time is over. */
static bool wait_for_change(outlet* it, uint32_t milliseconds, const struct timespec* deadline) {
  if (milliseconds == 0) return false;
  if (milliseconds == UINT32_MAX) return pthread_cond_wait(&it->changed, &lock) == 0;
  return pthread_cond_timedwait(&it->changed, &lock, deadline) != ETIMEDOUT;
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
  outlet* it = lock_and_find(handle);
  if (it) found = has_progress(it) ? COW_FOUND_CALLBACK : find_first(it);
  if (found == COW_FOUND_ITEM) hand_over(it, take, into, keep);
  pthread_mutex_unlock(&lock);
  return found;
}

cow_found cow_outlets_take(cow_kind kind, int32_t handle, uint32_t milliseconds, cow_take_fn take,
                           void* into, bool keep) {
  struct timespec deadline = cow_time_after((int64_t)milliseconds * 1000);
  bool in_time = true, calls_back = true; /* once more when the time is over */
  cow_found found = COW_FOUND_NONE;
  if (cow_handle_kind(handle) != kind) return found;
  outlet* it = lock_and_find(handle);
  if (it) it->users++;
  while (it) {
    found = find_first(it);
    if (has_progress(it) && calls_back) {
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
  if (it) leave(it);
  pthread_mutex_unlock(&lock);
  return found;
}

char* cow_outlets_take_log(int32_t handle, int32_t* level) {
  outlet* it = lock_and_find(handle);
  char* log = it ? it->log : NULL;
  if (log) *level = it->log_level;
  if (it) it->log = NULL;
  pthread_mutex_unlock(&lock);
  return log;
}

int cow_outlets_fd(cow_kind kind, int32_t handle) {
  if (cow_handle_kind(handle) != kind) return -2;
  outlet* it = lock_and_find(handle);
  int fd = it && it->state != IDLE ? cow_wake_fd_get(&it->wake) : -2;
  if (fd >= 0) show(it);
  pthread_mutex_unlock(&lock);
  return fd;
}

bool cow_outlets_open_ended(int32_t handle) {
  static const cow_offer end = {.status = COW_MLX_OK, .is_end = true};
  pthread_mutex_lock(&lock);
  outlet* it = cow_handle_is_open(COW_KIND_MODEL, handle) ? find_or_make(handle) : NULL;
  bool opened = it && (it->state != IDLE || (begin_round(it, OFFERING) && append(it, &end)));
  pthread_mutex_unlock(&lock);
  return opened;
}

bool cow_outlets_has_failed(int32_t handle) {
  outlet* it = lock_and_find(handle);
  bool failed = it && has_ended(it) && it->last->offer.status < 0;
  pthread_mutex_unlock(&lock);
  return failed;
}

/* A thread that makes an outlet meanwhile sees that the handle is closed, or is seen here. */
bool cow_outlets_close(int32_t handle) {
  bool open = cow_handle_close(handle);
  outlet* it = lock_and_find(handle); /* kinds other than contexts and models have none */
  if (it) close_outlet(it);
  pthread_mutex_unlock(&lock);
  return open;
}

void cow_outlets_close_models(void) {
  for (uint32_t slot = 0; slot < COW_HANDLE_SLOTS; slot++) {
    pthread_mutex_lock(&lock);
    while (slot < COW_HANDLE_SLOTS - 1 && !models[slot]) slot++;
    int32_t model = models[slot] ? models[slot]->handle : 0;
    pthread_mutex_unlock(&lock);
    if (model) cow_outlets_close(model);
  }
}

/* -------------------------------------------- The dispatch thread: calls that returned at once */

/* NULL if the call's outlet is closed, or has begun another round. Takes the lock. */
static outlet* lock_and_find_round(const cow_request* request) {
  outlet* it = lock_and_find(request->model ? request->model : request->context);
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
  if (event->kind == COW_EVENT_LOGITS) {
    cow_outlets_ask(request->context, request->round, event->logits);
    return;
  }
  char* text = event->text; /* freed unless the outlet takes it over */
  outlet* it = lock_and_find_round(request);
  if (it && event->kind == COW_EVENT_CHAT) {
    if (!append_event(it, event)) {
      it->lacks_memory = true;
      refuse(it);
      cow_queue_wake(); /* so that the call ends */
    }
    if (event->chat_kind == COW_MLX_EVENT_END) end_call(it); /* the host may begin another */
  } else if (it) {
    drop_progress(it);
    it->progress = *event;
    it->progress.name = text = NULL;
    show(it);
  }
  pthread_mutex_unlock(&lock);
  free(text);
  free(event->name);
}

bool cow_outlets_can_post(const cow_request* request) {
  outlet* it = lock_and_find_round(request);
  bool can = !it || has_ended(it) || (it->count < MAX_EVENTS && it->state != REFUSED);
  pthread_mutex_unlock(&lock);
  return can;
}

bool cow_outlets_refused(const cow_request* request) {
  outlet* it = lock_and_find_round(request);
  bool refused = it && it->state == REFUSED;
  pthread_mutex_unlock(&lock);
  return refused;
}

/* The dispatch thread knows only that the call was refused. */
static cow_mlx_status tell_of_memory(cow_request* request) {
  snprintf(request->message, COW_MESSAGE_SIZE, "%s: there is too little memory for an event",
           request->operation);
  cow_details_write(request->details, COW_DETAILS_SIZE, request->operation, COW_REASON_no_memory,
                    NULL);
  return COW_MLX_ENOMEM;
}

void cow_outlets_end(cow_request* request, cow_mlx_status status) {
  outlet* it = lock_and_find_round(request);
  if (it && it->lacks_memory && status == COW_MLX_ECANCELED) status = tell_of_memory(request);
  cow_offer end = {.status = status, .is_end = true};
  if (status < 0) {
    end.text = request->message;
    end.length = strlen(request->message);
    end.name = request->details;
  }
  if (it) {
    end_call(it);
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

uint32_t cow_outlets_begin(int32_t handle, uint32_t round, uint32_t cancels) {
  uint32_t begun = 0;
  outlet* it = lock_and_find(handle);
  if (it && round) {
    begun = it->round == round ? round : 0;
  } else if (it && it->state == IDLE && it->wake.made && begin_round(it, OFFERING)) {
    begun = it->round;
    it->cancels = cancels;
    cow_queue_wake(); /* the generation has a use for a step now */
  }
  pthread_mutex_unlock(&lock);
  return begun;
}

void cow_outlets_clear(int32_t handle) {
  outlet* it = lock_and_find(handle);
  if (it) it->taken = 0;
  if (it && !runs(it)) {
    drop_items(it);
    drop_progress(it);
    it->callbacks = (cow_callbacks){0};
    it->state = IDLE;
    it->round++;
    show(it);
  }
  pthread_mutex_unlock(&lock);
}

int cow_outlets_watch(int32_t handle) {
  pthread_mutex_lock(&lock);
  outlet* it = find_or_make(handle);
  int fd = it ? cow_wake_fd_get(&it->wake) : -1;
  if (fd < 0) fd = it ? -errno : -ENOMEM;
  if (fd >= 0) show(it);
  pthread_mutex_unlock(&lock);
  return fd;
}

bool cow_outlets_offer(int32_t handle, uint32_t round, const cow_offer* offer) {
  outlet* it = lock_and_find(handle);
  bool offered = !it || it->round != round || append(it, offer);
  pthread_mutex_unlock(&lock);
  return offered;
}

void cow_outlets_ask(int32_t handle, uint32_t round, cow_logits* logits) {
  outlet* it = lock_and_find(handle);
  if (it && it->round == round) {
    it->asked = (cow_event){.kind = COW_EVENT_LOGITS, .logits = logits};
    show(it);
  } else {
    cow_logits_let_go(logits);
  }
  pthread_mutex_unlock(&lock);
}

size_t cow_outlets_taken(int32_t handle, bool back) {
  size_t taken = 0;
  outlet* it = lock_and_find(handle);
  if (it) {
    taken = it->taken;
    it->taken = 0;
    if (back) {
      it->cancels = cow_handle_cancels(handle);
      drop_items(it);
      show(it);
    }
  }
  pthread_mutex_unlock(&lock);
  return taken;
}
