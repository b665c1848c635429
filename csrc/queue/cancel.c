#include "queue/cancel.h"

#include <stdatomic.h>
#include <stddef.h>

#if ATOMIC_INT_LOCK_FREE != 2
#error "a signal handler needs atomics without locks"
#endif

typedef struct slot {
  _Atomic int32_t handle; /* that is open in this slot, or 0 */
  _Atomic uint32_t epoch;
} slot;

static slot contexts[COW_HANDLE_SLOTS];
static slot programs[COW_HANDLE_SLOTS];
static slot trainings[COW_HANDLE_SLOTS];

/* NULL for a kind that nobody cancels. */
static slot* slot_of(int32_t handle) {
  uint32_t at = (uint32_t)handle % COW_HANDLE_SLOTS;
  switch ((uint32_t)handle / COW_HANDLE_SLOTS / COW_HANDLE_GENERATIONS) {
    case COW_KIND_CONTEXT:
      return &contexts[at];
    case COW_KIND_PROGRAM:
      return &programs[at];
    case COW_KIND_TRAINING:
      return &trainings[at];
  }
  return NULL;
}

static slot* open_slot_of(int32_t handle) {
  slot* found = slot_of(handle);
  return found && atomic_load(&found->handle) == handle ? found : NULL;
}

bool cow_cancel_request(cow_kind kind, int32_t handle) {
  slot* found = open_slot_of(handle);
  if (!found || (uint32_t)handle / COW_HANDLE_SLOTS / COW_HANDLE_GENERATIONS != kind) return false;
  atomic_fetch_add(&found->epoch, 1);
  return true;
}

uint32_t cow_cancel_epoch(int32_t handle) {
  slot* found = open_slot_of(handle);
  return found ? atomic_load(&found->epoch) : 0;
}

void cow_cancel_opened(int32_t handle) {
  slot* found = slot_of(handle);
  if (found) atomic_store(&found->handle, handle);
}

void cow_cancel_closed(int32_t handle) {
  slot* found = open_slot_of(handle);
  if (found) atomic_store(&found->handle, 0);
}
