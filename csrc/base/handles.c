#include "base/handles.h"

enum { FIRST_SLOT = 1, KINDS = COW_KIND_TRAINING + 1 };

static struct {
  uint16_t generations[COW_HANDLE_SLOTS]; /* of a slot's handle, or of its next one */
  bool open[COW_HANDLE_SLOTS];
  uint16_t freed[COW_HANDLE_SLOTS]; /* a ring of slots, the longest free first */
  uint32_t first_freed;
  uint32_t freed_count;
  uint32_t used; /* slots that ever had a handle */
} tables[KINDS];

static uint32_t slot_of(int32_t handle) { return (uint32_t)handle % COW_HANDLE_SLOTS; }

static uint32_t generation_of(int32_t handle) {
  return (uint32_t)handle / COW_HANDLE_SLOTS % COW_HANDLE_GENERATIONS;
}

cow_kind cow_handle_kind(int32_t handle) {
  return (cow_kind)((uint32_t)handle / COW_HANDLE_SLOTS / COW_HANDLE_GENERATIONS);
}

/* 0 if there is none. */
static uint32_t take_slot(cow_kind kind) {
  if (tables[kind].used + FIRST_SLOT < COW_HANDLE_SLOTS) return FIRST_SLOT + tables[kind].used++;
  if (!tables[kind].freed_count) return 0;
  uint32_t slot = tables[kind].freed[tables[kind].first_freed];
  tables[kind].first_freed = (tables[kind].first_freed + 1) % COW_HANDLE_SLOTS;
  tables[kind].freed_count--;
  return slot;
}

int32_t cow_handle_open(cow_kind kind) {
  uint32_t slot = take_slot(kind);
  if (!slot) return 0;
  uint32_t generation = tables[kind].generations[slot];
  tables[kind].open[slot] = true;
  return (int32_t)(((uint32_t)kind * COW_HANDLE_GENERATIONS + generation) * COW_HANDLE_SLOTS +
                   slot);
}

void cow_handle_close(int32_t handle) {
  uint32_t slot = slot_of(handle);
  cow_kind kind = cow_handle_kind(handle);
  uint32_t last = tables[kind].first_freed + tables[kind].freed_count++;
  tables[kind].freed[last % COW_HANDLE_SLOTS] = (uint16_t)slot;
  tables[kind].generations[slot] = (tables[kind].generations[slot] + 1) % COW_HANDLE_GENERATIONS;
  tables[kind].open[slot] = false;
}

bool cow_handle_is_open(int32_t handle) {
  uint32_t slot = slot_of(handle);
  cow_kind kind = cow_handle_kind(handle);
  if (handle <= 0 || kind < COW_KIND_MODEL || kind > COW_KIND_TRAINING) return false;
  return tables[kind].open[slot] && tables[kind].generations[slot] == generation_of(handle);
}
