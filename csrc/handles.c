#include "handles.h"

enum { FIRST_SLOT = 1, KINDS = COW_KIND_TRAINING + 1 };

static struct {
  uint16_t generations[COW_HANDLE_SLOTS]; /* of a slot's next handle */
  uint16_t freed[COW_HANDLE_SLOTS];       /* a ring of slots, the longest free first */
  uint32_t first_freed;
  uint32_t freed_count;
  uint32_t used; /* slots that ever had a handle */
} tables[KINDS];

int32_t cow_handle_open(cow_kind kind) {
  uint32_t slot;
  if (tables[kind].used + FIRST_SLOT < COW_HANDLE_SLOTS) {
    slot = FIRST_SLOT + tables[kind].used++;
  } else if (tables[kind].freed_count) {
    slot = tables[kind].freed[tables[kind].first_freed];
    tables[kind].first_freed = (tables[kind].first_freed + 1) % COW_HANDLE_SLOTS;
    tables[kind].freed_count--;
  } else {
    return 0;
  }
  uint32_t generation = tables[kind].generations[slot];
  return (int32_t)(((uint32_t)kind * COW_HANDLE_GENERATIONS + generation) * COW_HANDLE_SLOTS +
                   slot);
}

void cow_handle_close(int32_t handle) {
  uint32_t slot = (uint32_t)handle % COW_HANDLE_SLOTS;
  uint32_t kind = (uint32_t)handle / COW_HANDLE_SLOTS / COW_HANDLE_GENERATIONS;
  uint32_t last = tables[kind].first_freed + tables[kind].freed_count++;
  tables[kind].freed[last % COW_HANDLE_SLOTS] = (uint16_t)slot;
  tables[kind].generations[slot] = (tables[kind].generations[slot] + 1) % COW_HANDLE_GENERATIONS;
}
