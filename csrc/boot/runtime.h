/* The life of the runtime: counted starts and stops, fork, exit, and the way every call takes into
 * the queue. */
#ifndef COW_RUNTIME_H
#define COW_RUNTIME_H

#include "base/checks.h"
#include "queue/outlets.h"
#include "queue/taking.h"

/* Leave the call if it cannot be made now. */
#define BEGIN_CALL                     \
  do {                                 \
    cow_error_clear();                 \
    TRY(cow_runtime_check(OPERATION)); \
  } while (0)

#define CALL(request) cow_runtime_call(&(request), OPERATION)

/* Send a request to the dispatch thread and wait until it has ended. Sets the error message.
 * `operation` names the call in messages. Check first, with cow_runtime_check(). */
cow_mlx_status cow_runtime_call(cow_request* request, const char* operation);

/* Send a request that has a sink, and return. ESTATE with a message if it was not sent. */
cow_mlx_status cow_runtime_send(cow_request* request, const char* operation);

/* Call cow_outlets_take(), then deliver the log message of a call that has ended. */
cow_found cow_runtime_take(cow_kind kind, int32_t handle, uint32_t milliseconds, cow_take_fn take,
                           void* into, bool keep);

/* OK, or why no call can be made now. */
cow_mlx_status cow_runtime_check(const char* operation);

/* The same without a message. Async-signal-safe. */
cow_mlx_status cow_runtime_status(void);

#endif
