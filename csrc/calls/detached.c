#include "calls/detached.h"

#include <stdlib.h>
#include <string.h>

#include "queue/cancel.h"
#include "queue/deliver.h"
#include "boot/runtime.h"

/* As the bridge has it, of lists in params. */
enum { MAX_ITEMS = 1048576 };

void cow_detached_free(cow_detached* it) {
  while (it->copies) {
    cow_copy* copy = it->copies;
    it->copies = copy->next;
    free(copy);
  }
  free(it->request.log_message);
  free(it);
}

static void release(cow_request* request) { cow_detached_free((cow_detached*)request); }

bool cow_detached_on_event(const cow_mlx_event* event, void* user_data) {
  (void)event;
  (void)user_data;
  return true;
}

cow_detached* cow_detached_new(cow_op op) {
  cow_detached* it = calloc(1, sizeof *it);
  if (!it) return NULL;
  it->request.op = op;
  it->request.args = &it->args;
  it->request.deliver = cow_deliver;
  it->request.release = release;
  it->request.message = it->failure.message;
  it->request.details = it->failure.details;
  return it;
}

void* cow_detached_copy(cow_detached* to, const void* from, size_t size) {
  if (!from) return NULL;
  cow_copy* copy = size < SIZE_MAX - sizeof *copy ? malloc(sizeof *copy + size) : NULL;
  if (!copy) {
    to->lacks_memory = true;
    return NULL;
  }
  copy->next = to->copies;
  to->copies = copy;
  return memcpy(copy + 1, from, size);
}

const char* cow_detached_string(cow_detached* to, const char* from) {
  return from ? cow_detached_copy(to, from, strlen(from) + 1) : NULL;
}

void* cow_detached_values(cow_detached* to, const void* from, size_t count, size_t size) {
  return count <= MAX_ITEMS ? cow_detached_copy(to, from, count * size) : NULL;
}

const char* const* cow_detached_strings(cow_detached* to, const char* const* from, size_t count) {
  const char** strings = cow_detached_values(to, (const void*)from, count, sizeof *from);
  for (size_t i = 0; strings && i < count; i++) strings[i] = cow_detached_string(to, from[i]);
  return strings;
}

static cow_mlx_status begin_round(cow_detached* it, const char* operation) {
  cow_request* request = &it->request;
  cow_kind kind = request->model ? COW_KIND_MODEL : COW_KIND_CONTEXT;
  int32_t handle = request->model ? request->model : request->context;
  request->cancel_epoch = cow_cancel_epoch(handle);
  cow_mlx_status status = cow_outlets_open_round(kind, handle, &request->callbacks,
                                                 request->cancel_epoch, &request->round);
  switch (status) {
    case COW_MLX_EHANDLE:
      return cow_error(status, operation, COW_REASON_unknown_handle,
                       DETAILS(INT_DETAIL("handle", handle), TEXT_DETAIL("kind", "context")),
                       "%d is not an open context", (int)handle);
    case COW_MLX_ESTATE:
      return cow_error(status, operation, COW_REASON_context_busy, NULL,
                       "another call is running on this context; wait for it with context_poll, or "
                       "cancel it with context_cancel first");
    case COW_MLX_ENOMEM:
      it->lacks_memory = true;
  }
  return COW_MLX_OK;
}

cow_mlx_status cow_detached_send(cow_detached* it, const char* operation) {
  cow_mlx_status status = COW_MLX_OK;
  if (!it->lacks_memory) status = begin_round(it, operation);
  if (it->lacks_memory) {
    status = cow_error(COW_MLX_ENOMEM, operation, COW_REASON_no_memory, NULL,
                       "there is too little memory for what the call was given");
  }
  if (status == COW_MLX_OK) {
    status = cow_runtime_send(&it->request, operation);
    if (status == COW_MLX_OK) return status;
    cow_outlets_end(&it->request, status);
  }
  cow_detached_free(it);
  return status;
}
