/* Opens and frees handles of a kind, far more than there are slots and generations. */
#include "base/handles.h"

#include <stdio.h>
#include <stdlib.h>

#define EXPECT(condition)                                             \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

enum { OPENS = 300 * 1000 * 1000, NEVER_BEFORE = 268 * 1000 * 1000, KEPT = 20 };

/* One handle after the other, beside a few that stay open. */
static void turn_over(cow_kind kind) {
  int32_t kept[KEPT];
  for (int i = 0; i < KEPT; i++) EXPECT(kept[i] = cow_handle_open(kind));
  int32_t first = cow_handle_open(kind);
  cow_handle_close(first);
  bool again = false;
  for (int i = 1; i < OPENS; i++) {
    int32_t handle = cow_handle_open(kind);
    EXPECT(handle > 0 && handle >> 28 == (int32_t)kind);
    if (handle == first) {
      EXPECT(i > NEVER_BEFORE);
      again = true;
    }
    cow_handle_close(handle);
  }
  EXPECT(again); /* generations wrap: no table runs out */
  for (int i = 0; i < KEPT; i++) cow_handle_close(kept[i]);
}

/* As many as can be at once, all different; then none; and one again after one was freed. */
static void fill(cow_kind kind) {
  static unsigned char open[COW_HANDLE_SLOTS];
  int32_t last = 0;
  int count = 0;
  for (int32_t handle; (handle = cow_handle_open(kind)); count++) {
    EXPECT(!open[handle % COW_HANDLE_SLOTS]++);
    last = handle;
  }
  EXPECT(count == COW_HANDLE_SLOTS - 1);
  cow_handle_close(last);
  int32_t next = cow_handle_open(kind);
  EXPECT(next && next != last);
  EXPECT(!cow_handle_open(kind));
}

int main(void) {
  turn_over(COW_KIND_CONTEXT);
  fill(COW_KIND_MODEL);
  EXPECT(cow_handle_open(COW_KIND_CHECKPOINT)); /* another table */
  return 0;
}
