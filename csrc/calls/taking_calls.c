/* The calls that take results, and wait only if the host lets them. A host takes the items of an
 * outlet without the dispatch thread, and asks that thread for other results. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/handles.h"
#include "boot/runtime.h"

/* Make the failure of an offer the thread's. */
static cow_mlx_status fail_with(const cow_offer* offer) {
  cow_failure* failure = cow_error_failure();
  snprintf(failure->message, sizeof failure->message, "%s", offer->text);
  snprintf(failure->details, sizeof failure->details, "%s", offer->name);
  return offer->status;
}

static cow_mlx_status was_freed(const char* operation, const char* noun) {
  if (cow_runtime_status() != COW_MLX_OK) {
    return cow_error(COW_MLX_ECANCELED, operation, COW_REASON_runtime_stopped, NULL,
                     "the runtime was stopped");
  }
  return cow_error(COW_MLX_ECANCELED, operation, COW_REASON_freed, NULL, "the %s was freed", noun);
}

/* Let `taker`, which begins with the status that `function` writes, take the first item of a
 * context or model. False if nothing comes to its outlet; else the status is that of the call. */
static bool take(const char* operation, cow_kind kind, int32_t handle, uint32_t timeout_ms,
                 cow_take_fn function, void* taker, bool keep) {
  bool is_model = kind == COW_KIND_MODEL;
  cow_mlx_status* status = taker;
  switch (cow_runtime_take(kind, handle, timeout_ms, function, taker, keep)) {
    case COW_FOUND_ITEM:
      return true;
    case COW_FOUND_CLOSED:
      *status = was_freed(operation, is_model ? "model" : "context");
      return true;
    case COW_FOUND_NOT_YET:
      *status = cow_error(
          COW_MLX_ETIMEDOUT, operation, COW_REASON_timed_out,
          DETAILS(TEXT_DETAIL("argument", "timeout_ms"), SIZE_DETAIL("value", timeout_ms)),
          "timeout_ms is %u, and %s; poll again", (unsigned)timeout_ms,
          is_model ? "the model is not loaded yet" : "nothing is there yet");
      return true;
    case COW_FOUND_NONE:
    case COW_FOUND_CALLBACK:
      break;
  }
  return false;
}

/* -------------------------------------------------------------------- Pieces */

typedef struct piece_taker {
  cow_mlx_status status;
  const char* operation;
  char* text;
  size_t capacity;
  size_t* length;
  cow_mlx_piece* piece; /* or NULL */
} piece_taker;

static cow_mlx_status put_piece(const piece_taker* to, const cow_offer* offer) {
  if (offer->event_kind) {
    return cow_error(COW_MLX_ESTATE, to->operation, COW_REASON_conflict, NULL,
                     "a chat was begun on this context; take its events with context_next_event");
  }
  size_t size = offer->length;
  if (size > to->capacity) {
    *to->length = size;
    return cow_error(COW_MLX_EBUFFER, to->operation, COW_REASON_buffer_too_small,
                     DETAILS(SIZE_DETAIL("needed", size), SIZE_DETAIL("capacity", to->capacity)),
                     "capacity is %zu, but the text has %zu bytes", to->capacity, size);
  }
  if (size > 0) memcpy(to->text, offer->text, size);
  if (to->capacity > size) to->text[size] = '\0';
  *to->length = size;
  if (to->piece) {
    cow_mlx_piece piece = {.struct_size = sizeof piece,
                           .token = offer->token,
                           .logprob = offer->logprob,
                           .finish = offer->finish};
    cow_params_write(to->piece, &piece, sizeof piece);
  }
  return offer->status;
}

static bool take_piece(const cow_offer* offer, void* into) {
  piece_taker* to = into;
  to->status = offer->status < 0 ? fail_with(offer) : put_piece(to, offer);
  return to->status >= COW_MLX_OK;
}

cow_mlx_status cow_mlx_context_next(cow_mlx_context context, char* text, size_t capacity,
                                    size_t* length, cow_mlx_piece* piece) {
  BEGIN_CALL;
  REQUIRE_BUFFER(text, capacity);
  REQUIRE(length);
  if (piece) TRY(cow_params_check_size(OPERATION, "piece", "piece", piece));
  piece_taker to = {COW_MLX_OK, OPERATION, text, capacity, length, piece};
  if (take(OPERATION, COW_KIND_CONTEXT, context, UINT32_MAX, take_piece, &to, false)) {
    return to.status;
  }
  cow_mlx_piece result = {.struct_size = sizeof result};
  cow_context_next_args args = {
      .context = context, .text = {text, capacity, length}, .piece = &result};
  cow_request r = {.op = COW_OP_CONTEXT_NEXT, .args = &args, .context = context};
  cow_mlx_status status = CALL(r);
  if (piece && status >= COW_MLX_OK) cow_params_write(piece, &result, sizeof result);
  return status;
}

/* -------------------------------------------------------------------- Events */

typedef struct event_taker {
  cow_mlx_status status;
  const char* operation;
  cow_mlx_event* event;
} event_taker;

static bool take_event(const cow_offer* offer, void* into) {
  event_taker* to = into;
  if (offer->status < 0) {
    to->status = fail_with(offer);
    return true;
  }
  if (!offer->event_kind) {
    to->status = cow_error(COW_MLX_ESTATE, to->operation, COW_REASON_nothing_begun, NULL,
                           "no chat was begun on this context; take its pieces with context_next");
    return false;
  }
  /* An end stays in the outlet, and has no texts. */
  cow_mlx_event event = {.struct_size = sizeof event,
                         .kind = offer->event_kind,
                         .text = offer->is_end ? "" : offer->text,
                         .length = offer->is_end ? 0 : offer->length,
                         .name = offer->is_end ? "" : offer->name,
                         .finish = offer->finish};
  cow_params_write(to->event, &event, sizeof event);
  to->status = offer->status;
  return true;
}

cow_mlx_status cow_mlx_context_next_event(cow_mlx_context context, cow_mlx_event* event) {
  BEGIN_CALL;
  REQUIRE(event);
  TRY(cow_params_check_size(OPERATION, "event", "event", event));
  event_taker to = {COW_MLX_OK, OPERATION, event};
  if (take(OPERATION, COW_KIND_CONTEXT, context, UINT32_MAX, take_event, &to, true)) {
    return to.status;
  }
  if (!cow_handle_is_open(COW_KIND_CONTEXT, context)) {
    return cow_error_handle(OPERATION, "context", context);
  }
  return cow_error(COW_MLX_ESTATE, OPERATION, COW_REASON_nothing_begun, NULL,
                   "no chat was begun on this context; call context_chat_async first");
}

/* ------------------------------------------------------------------- Waiting */

static bool only_look(const cow_offer* offer, void* into) {
  (void)offer;
  (void)into;
  return false;
}

cow_mlx_status cow_mlx_context_poll(cow_mlx_context context, uint32_t timeout_ms) {
  BEGIN_CALL;
  cow_mlx_status status = COW_MLX_OK;
  if (take(OPERATION, COW_KIND_CONTEXT, context, timeout_ms, only_look, &status, false)) {
    return status;
  }
  cow_context_poll_args args = {.context = context, .timeout_ms = timeout_ms};
  cow_request r = {.op = COW_OP_CONTEXT_POLL, .args = &args, .context = context};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_wake_fd(cow_mlx_context context, int32_t* out) {
  BEGIN_CALL;
  REQUIRE(out);
  int fd = cow_outlets_fd(COW_KIND_CONTEXT, context);
  if (fd >= 0) {
    *out = fd;
    return COW_MLX_OK;
  }
  cow_context_wake_fd_args args = {.context = context, .out = out};
  cow_request r = {.op = COW_OP_CONTEXT_WAKE_FD, .args = &args, .context = context};
  return CALL(r);
}

/* -------------------------------------------------------------------- Models */

static bool take_end(const cow_offer* offer, void* into) {
  cow_mlx_status* status = into;
  *status = offer->status < 0 ? fail_with(offer) : offer->status;
  return true;
}

cow_mlx_status cow_mlx_model_poll(cow_mlx_model model, uint32_t timeout_ms) {
  BEGIN_CALL;
  cow_mlx_status status = COW_MLX_OK;
  if (!cow_handle_is_open(COW_KIND_MODEL, model)) {
    return cow_error_handle(OPERATION, "model", model);
  }
  /* Nothing comes to a model that a waiting call has loaded. */
  take(OPERATION, COW_KIND_MODEL, model, timeout_ms, take_end, &status, false);
  return status;
}

/* Why a model has no descriptor, which was open: -1 with errno, or -2. */
static cow_mlx_status no_model_fd(const char* operation, cow_mlx_model model, int fd) {
  if (fd == -1) {
    return cow_error(COW_MLX_EIO, operation, COW_REASON_no_descriptors, NULL,
                     "no descriptor can be opened: %s", strerror(errno));
  }
  if (!cow_handle_is_open(COW_KIND_MODEL, model)) {
    return cow_error_handle(operation, "model", model); /* freed meanwhile */
  }
  return cow_error(COW_MLX_ENOMEM, operation, COW_REASON_no_memory, NULL,
                   "there is too little memory for a descriptor");
}

cow_mlx_status cow_mlx_model_wake_fd(cow_mlx_model model, int32_t* out) {
  BEGIN_CALL;
  REQUIRE(out);
  if (!cow_handle_is_open(COW_KIND_MODEL, model)) {
    return cow_error_handle(OPERATION, "model", model);
  }
  int fd = cow_outlets_open_ended(model) ? cow_outlets_fd(COW_KIND_MODEL, model) : -2;
  if (fd < 0) return no_model_fd(OPERATION, model, fd);
  *out = fd;
  return COW_MLX_OK;
}

/* Close a model that could not be loaded; false if it is none. */
static bool close_failed(cow_mlx_model model) {
  bool is_model = cow_handle_kind(model) == COW_KIND_MODEL;
  return is_model && cow_outlets_has_failed(model) && cow_outlets_close(model);
}

/* The engine knows no model that could not be loaded; loading may fail while this call waits. */
cow_mlx_status cow_mlx_model_free(cow_mlx_model model) {
  BEGIN_CALL;
  if (close_failed(model)) return COW_MLX_OK;
  cow_model_free_args args = {.model = model};
  cow_request r = {.op = COW_OP_MODEL_FREE, .args = &args};
  cow_mlx_status status = CALL(r);
  if (status != COW_MLX_EHANDLE || !close_failed(model)) return status;
  cow_error_clear();
  return COW_MLX_OK;
}
