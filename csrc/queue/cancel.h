/* Cancellation that needs neither the queue nor Python: a counter per context, and per program.
 * A call notes it when it is made and is cancelled once it differs. */
#ifndef COW_CANCEL_H
#define COW_CANCEL_H

#include "bridge.h"

/* From any thread or signal handler. False if no such context or program is open. */
bool cow_cancel_request(cow_kind kind, int32_t handle);

/* From any thread. 0 for what is not open. */
uint32_t cow_cancel_epoch(int32_t handle);

/* From the dispatch thread, of handles of all kinds. */
void cow_cancel_opened(int32_t handle);
void cow_cancel_closed(int32_t handle);

#endif
