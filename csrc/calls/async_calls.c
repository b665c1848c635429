#include "calls/async_calls.h"

#include <stdlib.h>
#include <string.h>

#include "base/checks.h"
#include "base/handles.h"
#include "boot/runtime.h"
#include "queue/outlets.h"

/* Memory that lives as long as the request; the bytes follow. */
typedef struct cow_copy {
  struct cow_copy* next;
} cow_copy;

struct cow_detached {
  cow_request request;
  cow_failure failure; /* of the request */
  cow_copy* copies;
  bool lacks_memory; /* for one of the copies */
  union {
    cow_context_begin_args begin;
    cow_context_chat_args chat;
    cow_model_load_args load;
  } args;
  union {
    cow_mlx_generation_params generation;
    cow_mlx_model_params model;
  } params;
  cow_mlx_stats stats;  /* an output that no host sees */
  cow_mlx_model loaded; /* likewise: request.model */
};

/* In a list of params, as in the bridge. */
enum { MAX_ITEMS = 1048576 };

static void free_detached(cow_detached* it) {
  while (it->copies) {
    cow_copy* copy = it->copies;
    it->copies = copy->next;
    free(copy);
  }
  free(it->request.log_message);
  free(it);
}

static void end_detached(cow_request* request, cow_mlx_status status) {
  cow_outlets_end(request, status);
  free_detached((cow_detached*)request);
}

static const cow_sink outlet_sink = {.post = cow_outlets_post,
                                     .can_post = cow_outlets_can_post,
                                     .refused = cow_outlets_refused,
                                     .end = end_detached};

/* NULL without memory. */
static cow_detached* new_detached(cow_op op) {
  cow_detached* it = calloc(1, sizeof *it);
  if (!it) return NULL;
  it->request.op = op;
  it->request.args = &it->args;
  it->request.sink = &outlet_sink;
  it->request.message = it->failure.message;
  it->request.details = it->failure.details;
  return it;
}

static void* copy_bytes(cow_detached* to, const void* from, size_t size) {
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
  return from ? copy_bytes(to, from, strlen(from) + 1) : NULL;
}

void* cow_detached_values(cow_detached* to, const void* from, size_t count, size_t size) {
  return count <= MAX_ITEMS ? copy_bytes(to, from, count * size) : NULL;
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
  request->cancel_epoch = cow_handle_cancels(handle);
  cow_mlx_status status = cow_outlets_open_round(kind, handle, &request->callbacks,
                                                 request->cancel_epoch, &request->round);
  switch (status) {
    case COW_MLX_EHANDLE:
      return cow_error_handle(operation, request->model ? "model" : "context", handle);
    case COW_MLX_ESTATE:
      return cow_error(status, operation, COW_REASON_context_busy, NULL,
                       "another call is running on this context; wait for it with context_poll, or "
                       "cancel it with context_cancel first");
    case COW_MLX_ENOMEM:
      it->lacks_memory = true;
  }
  return COW_MLX_OK;
}

/* Begin a round of the outlet of context or model, and send the request; or free it. */
static cow_mlx_status send_detached(cow_detached* it, const char* operation) {
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
  free_detached(it);
  return status;
}

/* ------------------------------------------------------------------- Calls */

static cow_mlx_status no_memory(const char* operation) {
  return cow_error(COW_MLX_ENOMEM, operation, COW_REASON_no_memory, NULL,
                   "there is too little memory for the call");
}

/* Stands for the host's function: the outlet holds events until the host takes them. */
static bool ignore_event(const cow_mlx_event* event, void* user_data) {
  (void)event;
  (void)user_data;
  return true;
}

/* A call on a context, with copies of params. */
static cow_detached* on_context(cow_op op, cow_mlx_context context,
                                const cow_mlx_generation_params* params) {
  cow_detached* it = new_detached(op);
  if (!it) return NULL;
  it->request.context = context;
  it->request.callbacks.prompt = params->prompt_progress;
  it->request.callbacks.prompt_data = params->user_data;
  it->request.callbacks.logits = params->logits_fn;
  it->request.callbacks.logits_data = params->user_data;
  it->params.generation = *params;
  cow_detached_generation_params(it, &it->params.generation);
  return it;
}

cow_mlx_status cow_mlx_context_begin_async(cow_mlx_context context, const int32_t* tokens,
                                           size_t count, const cow_mlx_generation_params* params) {
  BEGIN_CALL;
  REQUIRE_TOKENS(tokens, count);
  cow_mlx_generation_params effective;
  TRY(COW_READ_PARAMS(generation, OPERATION, params, &effective));
  cow_detached* it = on_context(COW_OP_CONTEXT_BEGIN, context, &effective);
  if (!it) return no_memory(OPERATION);
  it->args.begin = (cow_context_begin_args){
      .context = context,
      .tokens = {copy_bytes(it, tokens, count * sizeof *tokens), count},
      .params = &it->params.generation,
  };
  return send_detached(it, OPERATION);
}

cow_mlx_status cow_mlx_context_chat_async(cow_mlx_context context, const char* messages_json,
                                          size_t length, const cow_mlx_generation_params* params,
                                          const char* options_json) {
  BEGIN_CALL;
  REQUIRE(messages_json);
  REQUIRE_TEXT(messages_json, length);
  cow_mlx_generation_params effective;
  TRY(COW_READ_PARAMS(generation, OPERATION, params, &effective));
  cow_detached* it = on_context(COW_OP_CONTEXT_CHAT, context, &effective);
  if (!it) return no_memory(OPERATION);
  cow_text messages = text_of(messages_json, length);
  it->request.callbacks.event = ignore_event;
  it->args.chat = (cow_context_chat_args){
      .context = context,
      .messages_json = {copy_bytes(it, messages.data, messages.length), messages.length},
      .params = &it->params.generation,
      .options_json = cow_detached_string(it, options_json),
      .stats = &it->stats,
  };
  return send_detached(it, OPERATION);
}

static cow_detached* load(const char* path, const cow_mlx_model_params* params) {
  cow_detached* it = new_detached(COW_OP_MODEL_LOAD);
  if (!it) return NULL;
  it->request.callbacks.progress = params->progress;
  it->request.callbacks.progress_data = params->user_data;
  it->params.model = *params;
  cow_detached_model_params(it, &it->params.model);
  it->args.load = (cow_model_load_args){
      .path = cow_detached_string(it, path),
      .params = &it->params.model,
      .out = &it->loaded,
  };
  return it;
}

cow_mlx_status cow_mlx_model_load_async(const char* path, const cow_mlx_model_params* params,
                                        cow_mlx_model* out) {
  BEGIN_CALL;
  REQUIRE(path);
  REQUIRE(out);
  cow_mlx_model_params effective;
  TRY(COW_READ_PARAMS(model, OPERATION, params, &effective));
  cow_detached* it = load(path, &effective);
  if (!it) return no_memory(OPERATION);
  cow_mlx_model model = it->request.model = cow_handle_open(COW_KIND_MODEL);
  if (!model) {
    free_detached(it);
    return cow_error(
        COW_MLX_ENOMEM, OPERATION, COW_REASON_no_handles,
        DETAILS(TEXT_DETAIL("kind", "model"), SIZE_DETAIL("limit", COW_HANDLE_SLOTS - 1)),
        "%d models are open, which is the most there can be", COW_HANDLE_SLOTS - 1);
  }
  cow_mlx_status status = send_detached(it, OPERATION);
  if (status == COW_MLX_OK) {
    *out = model;
  } else {
    cow_outlets_close(model);
  }
  return status;
}
