/* Handles: kind (3 bits), generation (12), slot (16). A table of slots per kind.
 *
 * Slots are reused in the order in which they were freed, each time with the next
 * generation. Generations wrap, so that no table ever runs out: while few handles
 * are open, a stale one could be taken for another object only after 65,535 x
 * 4,096 opens, about 268 million. One thread at a time: hosts
 * and the dispatch thread go through open_handles.h. */
#ifndef COW_HANDLES_H
#define COW_HANDLES_H

#include "bridge.h"

/* A new handle, or 0 if every slot of the kind is in use. */
int32_t cow_handle_open(cow_kind kind);

/* Free the slot of an open handle. */
void cow_handle_close(int32_t handle);

/* Whether a handle, whatever number it is, is open. */
bool cow_handle_is_open(int32_t handle);

/* Its kind, or what is none. */
cow_kind cow_handle_kind(int32_t handle);

#endif
