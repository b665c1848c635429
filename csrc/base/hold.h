/* A thread that ended inside a call would leave locks held, and its request on a lost stack:
 * pthread_cancel() has to wait meanwhile. */
#ifndef COW_HOLD_H
#define COW_HOLD_H

#include <pthread.h>

/* Returns what cow_release_thread() takes. */
static inline int cow_hold_thread(void) {
  int state;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
  return state;
}

static inline void cow_release_thread(int state) { pthread_setcancelstate(state, &state); }

#endif
