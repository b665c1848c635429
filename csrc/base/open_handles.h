/* Handles, and what there is of each besides the engine's object: its cancels, its outlet. Any
 * thread. */
#ifndef COW_OPEN_HANDLES_H
#define COW_OPEN_HANDLES_H

#include "bridge.h"

/* A new handle, or 0 if there is none. */
int32_t cow_open_handle(cow_kind kind);

/* False if it is not open. */
bool cow_close_handle(int32_t handle);

/* The runtime has stopped: close the handles that the engine knows nothing of. */
void cow_close_failed_models(void);

/* Whether a handle, whatever number it is, is an open one of this kind. */
bool cow_is_open_handle(cow_kind kind, int32_t handle);

#endif
