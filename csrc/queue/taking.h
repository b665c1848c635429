/* How hosts take the items of outlets, which queue/outlets.h describes, without waiting for the
 * dispatch thread. A number that is no handle of the kind has no outlet. */
#ifndef COW_TAKING_H
#define COW_TAKING_H

#include "bridge.h"

typedef enum cow_found {
  COW_FOUND_NONE,     /* nothing comes here: ask the dispatch thread */
  COW_FOUND_NOT_YET,  /* the time is over */
  COW_FOUND_ITEM,     /* the host has seen one */
  COW_FOUND_CLOSED,   /* the handle was freed meanwhile */
  COW_FOUND_CALLBACK, /* a callback is to be run before: take, not look */
} cow_found;

/* Look at the first item, and take it if `take` returns true, within `milliseconds` (UINT32_MAX:
 * without end). Runs callbacks on this thread. With `keep` the item lives until this thread keeps
 * another one. */
typedef bool (*cow_take_fn)(const cow_offer* offer, void* into);
cow_found cow_outlets_take(cow_kind kind, int32_t handle, uint32_t milliseconds, cow_take_fn take,
                           void* into, bool keep);

/* Take the first item as cow_outlets_take() does, without waiting and without callbacks. */
cow_found cow_outlets_look(cow_kind kind, int32_t handle, cow_take_fn take, void* into, bool keep);

/* The log message of a call that has ended, or NULL; the caller frees it. */
char* cow_outlets_take_log(int32_t handle, int32_t* level);

/* A descriptor that is readable while there is an item: -1 with errno if there can be none, -2 if
 * nothing comes here. */
int cow_outlets_fd(cow_kind kind, int32_t handle);

#endif
