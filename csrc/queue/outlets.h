/* What hosts take without waiting for the dispatch thread. A context or a model has an outlet from
 * the first call on it that returned at once, or the first descriptor that its host asked for:
 * there lie what such a call tells, its end, and the pieces that are generated then.
 *
 * An outlet has rounds: each call that returns at once begins one, and what still comes of the one
 * before is dropped. Knows no Python. */
#ifndef COW_OUTLETS_H
#define COW_OUTLETS_H

#include "bridge.h"

/* What a host finds there, first come, first taken. An end stays. */
typedef struct cow_item {
  struct cow_item* next;
  cow_offer offer;
} cow_item;

typedef enum cow_found {
  COW_FOUND_NONE,    /* nothing comes here: the dispatch thread knows */
  COW_FOUND_NOT_YET, /* the time is over */
  COW_FOUND_ITEM,    /* the host was shown one */
  COW_FOUND_CLOSED   /* the handle was freed meanwhile */
} cow_found;

/* Hosts. What is no handle of the kind has no outlet. */

/* Begin a round with a call on an open handle of a kind whose callbacks are run when its host
 * looks. OK, or ESTATE: a call runs already; EHANDLE: it is not open; ENOMEM. */
cow_mlx_status cow_outlets_open_round(cow_kind kind, int32_t handle, const cow_callbacks* callbacks,
                                      uint32_t epoch, uint32_t* round);

/* Look at what is there, and take it if `take` returns true, within `milliseconds` (UINT32_MAX: as
 * long as it takes). Runs callbacks on this thread. Where `keep` is true, what was taken lives
 * until the next time. */
typedef bool (*cow_take_fn)(const cow_offer* offer, void* into);
cow_found cow_outlets_take(cow_kind kind, int32_t handle, uint32_t milliseconds, cow_take_fn take,
                           void* into, bool keep);

/* What the host's log gets of a call that has ended, or NULL; the caller frees it. */
char* cow_outlets_take_log(int32_t handle, int32_t* level);

/* A descriptor that is readable while there is something: -1 with errno if there can be none, -2 if
 * nothing comes here. */
int cow_outlets_fd(cow_kind kind, int32_t handle);

/* An outlet that has ended, for a handle of what a call has opened that waited. False: no memory.
 */
bool cow_outlets_open_ended(int32_t handle);

/* The first model behind a handle, or 0, that has an outlet; 0: none. */
int32_t cow_outlets_next_model(int32_t handle);

/* Whether the last call that returned at once has failed. */
bool cow_outlets_has_failed(int32_t handle);

/* The dispatch thread, for a call that returned at once. */

void cow_outlets_post(const cow_request* request, const cow_event* event);
bool cow_outlets_can_post(const cow_request* request);
bool cow_outlets_refused(const cow_request* request);
void cow_outlets_end(cow_request* request, cow_mlx_status status);

/* The dispatch thread, for a context's generation. */

/* A generation begins, of a call of this round, or of 0: one that waits; epoch is that of cancels
 * when the call was made. Returns the round to offer
 * pieces to, or 0: the host asks for each. */
uint32_t cow_outlets_begin(int32_t handle, uint32_t round, uint32_t epoch);

/* There is no generation any more. */
void cow_outlets_clear(int32_t handle);

/* The host's descriptor, or a negative errno; the next generation is offered. */
int cow_outlets_watch(int32_t handle);

/* Offer a piece, or the end. False: no memory. */
bool cow_outlets_offer(int32_t handle, uint32_t round, const cow_offer* offer);

/* How many pieces the host has taken since it was last asked; with `back` all others are no longer
 * there to be taken. */
size_t cow_outlets_taken(int32_t handle, bool back);

/* The handle was closed. */
void cow_outlets_close(int32_t handle);

#endif
