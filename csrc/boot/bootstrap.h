/* The dispatch thread and its Python. */
#ifndef COW_BOOTSTRAP_H
#define COW_BOOTSTRAP_H

#include "bridge.h"

/* Boot Python, or join the one that runs, and let the dispatch thread carry out `start`; if that
 * succeeds, open the queue and serve it. Steps of an earlier call are not repeated. A joined Python
 * calls `at_exit` when it ends. Sets the error message. One thread at a time. */
cow_mlx_status cow_bootstrap_start(const cow_mlx_runtime_params* params, cow_request* start,
                                   void (*at_exit)(void));

/* Wait until the dispatch thread has left the closed queue, at most `seconds`. */
void cow_bootstrap_wait_parked(int seconds);

/* A forked child frees nothing of mlx's if the dispatch thread was at work: its interpreter would
 * wait, when it ends, for locks that threads of the parent held. Async-signal-safe. */
void cow_bootstrap_after_fork(void);

/* Let other Python threads run while this one waits in a call. NULL if the
 * thread does not hold the interpreter, which restore accepts. */
void* cow_bootstrap_release_interpreter(void);
void cow_bootstrap_restore_interpreter(void* state);

#endif
