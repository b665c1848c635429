/* Logits that a host changes before a token is sampled: shared by the dispatch thread, which asks,
 * and by the thread that runs the host's function. Knows no Python. */
#ifndef COW_LOGITS_H
#define COW_LOGITS_H

#include "bridge.h"

/* Room for a question, whose only user is the caller; NULL without memory. */
cow_logits* cow_logits_new(cow_mlx_logits_fn function, void* data, size_t count, size_t vocabulary);

/* Let an event have the question, too. */
void cow_logits_share(cow_logits* logits);

/* Leave a question, or NULL; its last user frees it. */
void cow_logits_let_go(cow_logits* logits);

/* Run the host's function on this thread, and leave the question; false: it cancels. */
bool cow_logits_ask(cow_logits* logits);

/* 0: the function has not returned yet, 1: it has returned true, -1: false. */
int cow_logits_answer(const cow_logits* logits);

#endif
