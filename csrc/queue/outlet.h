/* One outlet, for the two sides of it: see queue/outlets.h. All here is used with the lock held. */
#ifndef COW_OUTLET_H
#define COW_OUTLET_H

#include <pthread.h>

#include "bridge.h"
#include "queue/wake_fd.h"

/* First come, first taken. An end stays. */
typedef struct cow_item {
  struct cow_item* next;
  cow_offer offer; /* its texts follow */
} cow_item;

typedef struct cow_outlet {
  int32_t handle;
  uint32_t round;
  enum {
    COW_OUTLET_IDLE,     /* nothing comes here: each piece is asked for */
    COW_OUTLET_OFFERING, /* results come here */
    COW_OUTLET_RUNNING,  /* likewise, of a call that returned at once and has not ended */
    COW_OUTLET_REFUSED,  /* likewise, and a callback of the call returned false */
    COW_OUTLET_CLOSED    /* out of the table; the last user frees it */
  } state;
  uint32_t cancels;  /* of the handle, as the dispatch thread has seen them */
  unsigned users;    /* calls that look at it, and the table */
  bool lacks_memory; /* for an event, so the call was refused */
  size_t taken;      /* pieces, since the dispatch thread last asked */
  size_t count;      /* items */
  cow_item* first;
  cow_item* last;
  cow_item* kept;  /* whose texts the host reads, if its thread has no place for it */
  cow_item* spare; /* for an end, which needs a place even when memory is short */
  char* log;       /* of the call that has ended: for the host's log, or NULL */
  int32_t log_level;
  cow_event progress; /* that the host has not seen, or of kind NONE */
  cow_event asked;    /* likewise, logits */
  cow_callbacks callbacks;
  pthread_cond_t changed;
  cow_wake_fd wake;
} cow_outlet;

/* One lock guards all outlets. It is held for a few instructions at a time and never across a
 * callback; threads that hold it wait only for changes. */
extern pthread_mutex_t cow_outlet_lock;
extern cow_outlet* cow_outlet_models[COW_HANDLE_SLOTS];

/* Take the lock, which the caller lets go of; the outlet of a handle, or NULL. */
cow_outlet* cow_outlet_lock_and_find(int32_t handle);

/* The outlet of an open handle, made if need be; NULL without memory. */
cow_outlet* cow_outlet_find_or_make(int32_t handle);

/* Wake those who wait, and make the descriptor readable while it has items or progress. */
void cow_outlet_show(cow_outlet* it);

void cow_outlet_drop_progress(cow_outlet* it);
void cow_outlet_drop_items(cow_outlet* it);

/* Leave an outlet; the last user frees it. */
void cow_outlet_leave(cow_outlet* it);

/* Any state -> CLOSED. */
void cow_outlet_close(cow_outlet* it);

/* Any state -> IDLE, OFFERING or RUNNING. False without memory: nothing has changed. */
bool cow_outlet_begin_round(cow_outlet* it, int state);

/* Put a copy of an offer, texts and all, behind the others; false without memory. */
bool cow_outlet_append(cow_outlet* it, const cow_offer* offer);

static inline bool cow_outlet_has_progress(const cow_outlet* it) {
  return it->progress.kind || it->asked.kind;
}

static inline bool cow_outlet_runs(const cow_outlet* it) {
  return it->state == COW_OUTLET_RUNNING || it->state == COW_OUTLET_REFUSED;
}

static inline bool cow_outlet_has_ended(const cow_outlet* it) {
  return it->last && it->last->offer.is_end;
}

/* RUNNING -> REFUSED. */
static inline void cow_outlet_refuse(cow_outlet* it) {
  if (it->state == COW_OUTLET_RUNNING) it->state = COW_OUTLET_REFUSED;
}

/* RUNNING, REFUSED -> OFFERING. */
static inline void cow_outlet_end_call(cow_outlet* it) {
  if (cow_outlet_runs(it)) it->state = COW_OUTLET_OFFERING;
}

#endif
