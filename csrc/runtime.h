/* The life of the runtime: counted starts and stops, fork, exit, and the way
 * every call takes into the queue. */
#ifndef COW_RUNTIME_H
#define COW_RUNTIME_H

#include "bridge.h"

/* Send a request to the dispatch thread and wait until it has ended. Sets the
 * error message. `operation` names the call in messages. Check first, with
 * cow_runtime_check(). */
cow_mlx_status cow_runtime_call(cow_request* request, const char* operation);

/* OK, or why no call can be made now. */
cow_mlx_status cow_runtime_check(const char* operation);

/* The same without a message. Async-signal-safe. */
cow_mlx_status cow_runtime_status(void);

/* The process ends: let the dispatch thread come to rest. */
void cow_runtime_at_exit(void);

#endif
