#include "queue/outlets.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/handles.h"
#include "queue/logits.h"
#include "queue/outlet.h"
#include "queue/queue.h"

/* Events of one call that may lie untaken; of progress only the last one lies there. */
enum { MAX_EVENTS = 64 };

/* ---------------------------------------------------------------------- Hosts */

cow_mlx_status cow_outlets_open_round(cow_kind kind, int32_t handle, const cow_callbacks* callbacks,
                                      uint32_t cancels, uint32_t* round) {
  cow_mlx_status status = COW_MLX_ENOMEM;
  pthread_mutex_lock(&cow_outlet_lock);
  cow_outlet* it = cow_handle_is_open(kind, handle) ? cow_outlet_find_or_make(handle) : NULL;
  if (!cow_handle_is_open(kind, handle)) {
    status = COW_MLX_EHANDLE;
  } else if (it && cow_outlet_runs(it)) {
    status = COW_MLX_ESTATE;
  } else if (it && cow_outlet_begin_round(it, COW_OUTLET_RUNNING)) {
    it->cancels = cancels;
    it->callbacks = *callbacks;
    *round = it->round;
    status = COW_MLX_OK;
  }
  pthread_mutex_unlock(&cow_outlet_lock);
  return status;
}

bool cow_outlets_open_ended(int32_t handle) {
  static const cow_offer end = {.status = COW_MLX_OK, .is_end = true};
  pthread_mutex_lock(&cow_outlet_lock);
  cow_outlet* it =
      cow_handle_is_open(COW_KIND_MODEL, handle) ? cow_outlet_find_or_make(handle) : NULL;
  bool opened =
      it && (it->state != COW_OUTLET_IDLE ||
             (cow_outlet_begin_round(it, COW_OUTLET_OFFERING) && cow_outlet_append(it, &end)));
  pthread_mutex_unlock(&cow_outlet_lock);
  return opened;
}

bool cow_outlets_has_failed(int32_t handle) {
  cow_outlet* it = cow_outlet_lock_and_find(handle);
  bool failed = it && cow_outlet_has_ended(it) && it->last->offer.status < 0;
  pthread_mutex_unlock(&cow_outlet_lock);
  return failed;
}

/* A thread that makes an outlet meanwhile sees that the handle is closed, or is seen here. */
bool cow_outlets_close(int32_t handle) {
  bool open = cow_handle_close(handle);
  cow_outlet* it =
      cow_outlet_lock_and_find(handle); /* kinds other than contexts and models have none */
  if (it) cow_outlet_close(it);
  pthread_mutex_unlock(&cow_outlet_lock);
  return open;
}

void cow_outlets_close_models(void) {
  for (uint32_t slot = 0; slot < COW_HANDLE_SLOTS; slot++) {
    pthread_mutex_lock(&cow_outlet_lock);
    while (slot < COW_HANDLE_SLOTS - 1 && !cow_outlet_models[slot]) slot++;
    int32_t model = cow_outlet_models[slot] ? cow_outlet_models[slot]->handle : 0;
    pthread_mutex_unlock(&cow_outlet_lock);
    if (model) cow_outlets_close(model);
  }
}

/* -------------------------------------------- The dispatch thread: calls that returned at once */

/* NULL if the call's outlet is closed, or has begun another round. Takes the lock. */
static cow_outlet* lock_and_find_round(const cow_request* request) {
  cow_outlet* it = cow_outlet_lock_and_find(request->model ? request->model : request->context);
  return it && it->round == request->round ? it : NULL;
}

static bool append_event(cow_outlet* it, const cow_event* event) {
  bool is_end = event->chat_kind == COW_MLX_EVENT_END;
  cow_offer offer = {.status = is_end ? COW_MLX_DONE : COW_MLX_OK,
                     .is_end = is_end,
                     .event_kind = event->chat_kind,
                     .finish = event->finish,
                     .text = event->text,
                     .length = event->length,
                     .name = event->name};
  return cow_outlet_append(it, &offer);
}

void cow_outlets_post(const cow_request* request, const cow_event* event) {
  if (event->kind == COW_EVENT_LOGITS) {
    cow_outlets_ask(request->context, request->round, event->logits);
    return;
  }
  char* text = event->text; /* freed unless the outlet takes it over */
  cow_outlet* it = lock_and_find_round(request);
  if (it && event->kind == COW_EVENT_CHAT) {
    if (!append_event(it, event)) {
      it->lacks_memory = true;
      cow_outlet_refuse(it);
      cow_queue_wake(); /* so that the call ends */
    }
    if (event->chat_kind == COW_MLX_EVENT_END)
      cow_outlet_end_call(it); /* the host may begin another */
  } else if (it) {
    cow_outlet_drop_progress(it);
    it->progress = *event;
    it->progress.name = text = NULL;
    cow_outlet_show(it);
  }
  pthread_mutex_unlock(&cow_outlet_lock);
  free(text);
  free(event->name);
}

bool cow_outlets_can_post(const cow_request* request) {
  cow_outlet* it = lock_and_find_round(request);
  bool can = !it || cow_outlet_has_ended(it) ||
             (it->count < MAX_EVENTS && it->state != COW_OUTLET_REFUSED);
  pthread_mutex_unlock(&cow_outlet_lock);
  return can;
}

bool cow_outlets_refused(const cow_request* request) {
  cow_outlet* it = lock_and_find_round(request);
  bool refused = it && it->state == COW_OUTLET_REFUSED;
  pthread_mutex_unlock(&cow_outlet_lock);
  return refused;
}

/* The dispatch thread knows only that the call was refused. */
static cow_mlx_status tell_of_memory(cow_request* request) {
  snprintf(request->message, COW_MESSAGE_SIZE, "%s: there is too little memory for an event",
           request->operation);
  cow_details_write(request->details, COW_DETAILS_SIZE, request->operation, COW_REASON_no_memory,
                    NULL);
  return COW_MLX_ENOMEM;
}

void cow_outlets_end(cow_request* request, cow_mlx_status status) {
  cow_outlet* it = lock_and_find_round(request);
  if (it && it->lacks_memory && status == COW_MLX_ECANCELED) status = tell_of_memory(request);
  cow_offer end = {.status = status, .is_end = true};
  if (status < 0) {
    end.text = request->message;
    end.length = strlen(request->message);
    end.name = request->details;
  }
  if (it) {
    cow_outlet_end_call(it);
    free(it->log);
    it->log = request->log_message;
    it->log_level = request->log_level;
    request->log_message = NULL;
    if (status == COW_MLX_ECANCELED) cow_outlet_drop_items(it);
    if (status < 0 || request->model) cow_outlet_append(it, &end);
    cow_outlet_show(it);
  }
  pthread_mutex_unlock(&cow_outlet_lock);
}

/* ------------------------------------------- The dispatch thread: generations of contexts */

uint32_t cow_outlets_begin(int32_t handle, uint32_t round, uint32_t cancels) {
  uint32_t begun = 0;
  cow_outlet* it = cow_outlet_lock_and_find(handle);
  if (it && round) {
    begun = it->round == round ? round : 0;
  } else if (it && it->state == COW_OUTLET_IDLE && it->wake.made &&
             cow_outlet_begin_round(it, COW_OUTLET_OFFERING)) {
    begun = it->round;
    it->cancels = cancels;
    cow_queue_wake(); /* the generation has a use for a step now */
  }
  pthread_mutex_unlock(&cow_outlet_lock);
  return begun;
}

void cow_outlets_clear(int32_t handle) {
  cow_outlet* it = cow_outlet_lock_and_find(handle);
  if (it) it->taken = 0;
  if (it && !cow_outlet_runs(it)) {
    cow_outlet_drop_items(it);
    cow_outlet_drop_progress(it);
    it->callbacks = (cow_callbacks){0};
    it->state = COW_OUTLET_IDLE;
    it->round++;
    cow_outlet_show(it);
  }
  pthread_mutex_unlock(&cow_outlet_lock);
}

int cow_outlets_watch(int32_t handle) {
  pthread_mutex_lock(&cow_outlet_lock);
  cow_outlet* it = cow_outlet_find_or_make(handle);
  int fd = it ? cow_wake_fd_get(&it->wake) : -1;
  if (fd < 0) fd = it ? -errno : -ENOMEM;
  if (fd >= 0) cow_outlet_show(it);
  pthread_mutex_unlock(&cow_outlet_lock);
  return fd;
}

bool cow_outlets_offer(int32_t handle, uint32_t round, const cow_offer* offer) {
  cow_outlet* it = cow_outlet_lock_and_find(handle);
  bool offered = !it || it->round != round || cow_outlet_append(it, offer);
  pthread_mutex_unlock(&cow_outlet_lock);
  return offered;
}

void cow_outlets_ask(int32_t handle, uint32_t round, cow_logits* logits) {
  cow_outlet* it = cow_outlet_lock_and_find(handle);
  if (it && it->round == round) {
    it->asked = (cow_event){.kind = COW_EVENT_LOGITS, .logits = logits};
    cow_outlet_show(it);
  } else {
    cow_logits_let_go(logits);
  }
  pthread_mutex_unlock(&cow_outlet_lock);
}

size_t cow_outlets_taken(int32_t handle, bool back) {
  size_t taken = 0;
  cow_outlet* it = cow_outlet_lock_and_find(handle);
  if (it) {
    taken = it->taken;
    it->taken = 0;
    if (back) {
      it->cancels = cow_handle_cancels(handle);
      cow_outlet_drop_items(it);
      cow_outlet_show(it);
    }
  }
  pthread_mutex_unlock(&cow_outlet_lock);
  return taken;
}
