#include "cancel.h"

#include <stdatomic.h>

#if ATOMIC_INT_LOCK_FREE != 2
#error "a signal handler needs atomics without locks"
#endif

static struct {
  _Atomic int32_t handle; /* of the context that is open in this slot, or 0 */
  _Atomic uint32_t epoch;
} slots[COW_HANDLE_SLOTS];

static uint32_t slot_of(cow_mlx_context context) {
  return (uint32_t)context & (COW_HANDLE_SLOTS - 1);
}

static bool is_open(cow_mlx_context context) {
  return context > 0 && atomic_load(&slots[slot_of(context)].handle) == context;
}

bool cow_cancel_request(cow_mlx_context context) {
  if (!is_open(context)) return false;
  atomic_fetch_add(&slots[slot_of(context)].epoch, 1);
  return true;
}

uint32_t cow_cancel_epoch(cow_mlx_context context) {
  return is_open(context) ? atomic_load(&slots[slot_of(context)].epoch) : 0;
}

void cow_cancel_opened(cow_mlx_context context) {
  atomic_store(&slots[slot_of(context)].handle, context);
}

void cow_cancel_closed(cow_mlx_context context) {
  if (is_open(context)) atomic_store(&slots[slot_of(context)].handle, 0);
}
