#include "base/handles.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#if ATOMIC_INT_LOCK_FREE != 2
#error "a signal handler needs atomics without locks"
#endif

enum { FIRST_SLOT = 1, KINDS = COW_KIND_TRAINING + 1 };

typedef struct slot {
  _Atomic int32_t handle; /* the open one, or 0 */
  _Atomic uint32_t cancels;
  uint16_t generation; /* of the next handle, or of the open one */
} slot;

/* The lock guards all but the atomic members. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  slot slots[COW_HANDLE_SLOTS];
  uint16_t freed[COW_HANDLE_SLOTS]; /* a ring of slots, the longest free first */
  uint32_t first_freed;
  uint32_t freed_count;
  uint32_t used; /* slots that ever had a handle */
} tables[KINDS];

cow_kind cow_handle_kind(int32_t handle) {
  return (cow_kind)((uint32_t)handle / COW_HANDLE_SLOTS / COW_HANDLE_GENERATIONS);
}

/* The slot of an open handle, or NULL. */
static slot* find(int32_t handle) {
  if (handle <= 0) return NULL; /* positive numbers have a kind below KINDS */
  slot* found = &tables[cow_handle_kind(handle)].slots[(uint32_t)handle % COW_HANDLE_SLOTS];
  return atomic_load(&found->handle) == handle ? found : NULL;
}

/* A slot's number, or 0 if all are in use. With the lock held. */
static uint32_t take_slot(cow_kind kind) {
  if (tables[kind].used + FIRST_SLOT < COW_HANDLE_SLOTS) return FIRST_SLOT + tables[kind].used++;
  if (!tables[kind].freed_count) return 0;
  uint32_t at = tables[kind].freed[tables[kind].first_freed];
  tables[kind].first_freed = (tables[kind].first_freed + 1) % COW_HANDLE_SLOTS;
  tables[kind].freed_count--;
  return at;
}

int32_t cow_handle_open(cow_kind kind) {
  int32_t handle = 0;
  pthread_mutex_lock(&lock);
  uint32_t at = take_slot(kind);
  if (at) {
    slot* taken = &tables[kind].slots[at];
    uint32_t above = (uint32_t)kind * COW_HANDLE_GENERATIONS + taken->generation;
    handle = (int32_t)(above * COW_HANDLE_SLOTS + at);
    atomic_store(&taken->handle, handle);
  }
  pthread_mutex_unlock(&lock);
  return handle;
}

bool cow_handle_close(int32_t handle) {
  cow_kind kind = cow_handle_kind(handle);
  pthread_mutex_lock(&lock);
  slot* open = find(handle);
  if (open) {
    uint32_t last = tables[kind].first_freed + tables[kind].freed_count++;
    tables[kind].freed[last % COW_HANDLE_SLOTS] = (uint16_t)((uint32_t)handle % COW_HANDLE_SLOTS);
    open->generation = (open->generation + 1) % COW_HANDLE_GENERATIONS;
    atomic_store(&open->handle, 0);
  }
  pthread_mutex_unlock(&lock);
  return open != NULL;
}

bool cow_handle_is_open(cow_kind kind, int32_t handle) {
  return cow_handle_kind(handle) == kind && find(handle);
}

bool cow_handle_cancel(cow_kind kind, int32_t handle) {
  slot* open = cow_handle_kind(handle) == kind ? find(handle) : NULL;
  if (open) atomic_fetch_add(&open->cancels, 1);
  return open != NULL;
}

uint32_t cow_handle_cancels(int32_t handle) {
  slot* open = find(handle);
  return open ? atomic_load(&open->cancels) : 0;
}
