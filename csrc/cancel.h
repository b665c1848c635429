/* Cancellation that needs neither the queue nor Python: a counter per context.
 * A call notes it when it is made and is cancelled once it differs. */
#ifndef COW_CANCEL_H
#define COW_CANCEL_H

#include "bridge.h"

/* From any thread or signal handler. False if no such context is open. */
bool cow_cancel_request(cow_mlx_context context);

/* From any thread. 0 for a context that is not open. */
uint32_t cow_cancel_epoch(cow_mlx_context context);

/* From the dispatch thread. */
void cow_cancel_opened(cow_mlx_context context);
void cow_cancel_closed(cow_mlx_context context);

#endif
