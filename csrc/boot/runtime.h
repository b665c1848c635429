/* The life of the runtime: counted starts and stops, fork, exit, and the way
 * every call takes into the queue. */
#ifndef COW_RUNTIME_H
#define COW_RUNTIME_H

#include "queue/outlets.h"

/* Send a request to the dispatch thread and wait until it has ended. Sets the
 * error message. `operation` names the call in messages. Check first, with
 * cow_runtime_check(). */
cow_mlx_status cow_runtime_call(cow_request* request, const char* operation);

/* Send a request that nobody waits for: what it tells, and its end, come to its outlet. ESTATE with
 * a message if it was not sent. */
cow_mlx_status cow_runtime_send(cow_request* request, const char* operation);

/* cow_outlets_take(), and the log of what has ended. */
cow_found cow_runtime_take(cow_kind kind, int32_t handle, uint32_t milliseconds, cow_take_fn take,
                           void* into, bool keep);

/* OK, or why no call can be made now. */
cow_mlx_status cow_runtime_check(const char* operation);

/* The same without a message. Async-signal-safe. */
cow_mlx_status cow_runtime_status(void);

/* The process ends: let the dispatch thread come to rest. */
void cow_runtime_at_exit(void);

#endif
