/* Handles: kind (3 bits), generation (12), slot (16). A table of slots per kind.
 *
 * Slots are reused in the order in which they were freed, each time with the next generation.
 * Generations wrap, so that no table runs out: while few handles are open, a stale one could be
 * taken for another object only after 65,535 x 4,096 opens, about 268 million.
 *
 * Cancellation needs neither the queue nor Python: a slot counts its cancels. A call notes the
 * count when it is made, and is cancelled once the count differs. Any thread may call. */
#ifndef COW_HANDLES_H
#define COW_HANDLES_H

#include "bridge.h"

/* A new handle, or 0 if every slot of the kind is in use. */
int32_t cow_handle_open(cow_kind kind);

/* False if the handle is not open. */
bool cow_handle_close(int32_t handle);

/* Whether a number is an open handle of this kind. Takes no lock. */
bool cow_handle_is_open(cow_kind kind, int32_t handle);

/* The kind of a handle; of other numbers any value. */
cow_kind cow_handle_kind(int32_t handle);

/* Count a cancel. False if no such handle is open. Async-signal-safe. */
bool cow_handle_cancel(cow_kind kind, int32_t handle);

/* The count of cancels; 0 if the handle is not open. */
uint32_t cow_handle_cancels(int32_t handle);

#endif
