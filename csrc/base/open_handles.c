#include "base/open_handles.h"

#include <pthread.h>

#include "queue/cancel.h"
#include "base/handles.h"
#include "queue/outlets.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int32_t cow_open_handle(cow_kind kind) {
  pthread_mutex_lock(&lock);
  int32_t handle = cow_handle_open(kind);
  pthread_mutex_unlock(&lock);
  if (handle) cow_cancel_opened(handle); /* if it is of a kind that can be cancelled */
  return handle;
}

/* Whoever makes an outlet meanwhile sees that the handle is closed, or is seen here. */
bool cow_close_handle(int32_t handle) {
  cow_cancel_closed(handle);
  pthread_mutex_lock(&lock);
  bool open = cow_handle_is_open(handle);
  if (open) cow_handle_close(handle);
  pthread_mutex_unlock(&lock);
  if (open) cow_outlets_close(handle);
  return open;
}

void cow_close_failed_models(void) {
  for (int32_t model = 0; (model = cow_outlets_next_model(model)) != 0;) cow_close_handle(model);
}

bool cow_is_open_handle(cow_kind kind, int32_t handle) {
  if (cow_handle_kind(handle) != kind) return false;
  pthread_mutex_lock(&lock);
  bool open = cow_handle_is_open(handle);
  pthread_mutex_unlock(&lock);
  return open;
}
