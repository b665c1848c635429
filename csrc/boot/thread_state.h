/* Which Python thread state the calling thread holds, to let go of it while it waits. */
#ifndef COW_THREAD_STATE_H
#define COW_THREAD_STATE_H

#include <stdbool.h>

#include "boot/python_api.h"

/* The state with which this thread holds an interpreter, or NULL. */
PyThreadState* cow_thread_state_held(const cow_python_api* py);

/* Whether this thread is inside a sub-interpreter, as far as it can be known. */
bool cow_thread_state_is_sub(const cow_python_api* py);

#endif
