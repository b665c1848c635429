/* Where hosts take results without waiting for the dispatch thread. A context or a model has an
 * outlet from the first call on it that returned at once, or the first descriptor that its host
 * asked for: the outlet holds the events of such a call, its end, and generated pieces.
 *
 * An outlet has rounds: each call that returns at once begins one, and later results of the round
 * before are dropped. Knows no Python. */
#ifndef COW_OUTLETS_H
#define COW_OUTLETS_H

#include "bridge.h"

/* Hosts. A number that is no handle of the kind has no outlet. */

/* Begin a round with a call on an open handle of a kind. Its callbacks are run when the host looks.
 * OK, or ESTATE: a call runs already; EHANDLE: it is not open; ENOMEM. */
cow_mlx_status cow_outlets_open_round(cow_kind kind, int32_t handle, const cow_callbacks* callbacks,
                                      uint32_t cancels, uint32_t* round);

/* Give a model that a waiting call has loaded an outlet that has ended. False: no memory. */
bool cow_outlets_open_ended(int32_t handle);

/* Whether the last call that returned at once has failed. */
bool cow_outlets_has_failed(int32_t handle);

/* Close a handle of any kind, and its outlet; false if it is not open. Any thread. */
bool cow_outlets_close(int32_t handle);

/* The runtime has stopped: close the models that the engine does not know, since loading failed. */
void cow_outlets_close_models(void);

/* The dispatch thread: a cow_sink for requests whose call has returned at once. */

void cow_outlets_post(const cow_request* request, const cow_event* event);
bool cow_outlets_can_post(const cow_request* request);
bool cow_outlets_refused(const cow_request* request);
void cow_outlets_end(cow_request* request, cow_mlx_status status); /* does not free it */

/* The dispatch thread: the generation of a context. */

/* Begin a generation by the call of this round, or, with 0, by a call that waits, if the host has a
 * descriptor and no other call has begun a round; `cancels` are those when the call was made.
 * Returns the round to offer pieces to, or 0: the host asks for each. */
uint32_t cow_outlets_begin(int32_t handle, uint32_t round, uint32_t cancels);

/* The context no longer has a generation. */
void cow_outlets_clear(int32_t handle);

/* The host's descriptor, or a negative errno; the next generation is offered. */
int cow_outlets_watch(int32_t handle);

/* Offer a piece, or the end. False: no memory. */
bool cow_outlets_offer(int32_t handle, uint32_t round, const cow_offer* offer);

/* Let the thread that looks next run the host's function on logits, which it leaves. */
void cow_outlets_ask(int32_t handle, uint32_t round, cow_logits* logits);

/* How many pieces the host has taken since the last call; with `back` no other can be taken. */
size_t cow_outlets_taken(int32_t handle, bool back);

#endif
