/* The public calls: check the arguments, fill a request, wait. No policy. */
#include <string.h>

#include "cancel.h"
#include "error.h"
#include "params.h"
#include "queue.h"
#include "runtime.h"

/* "cow_mlx_model_load" is called model_load in messages. */
#define OPERATION (__func__ + sizeof "cow_mlx_" - 1)

#define INVALID(...) return cow_error(COW_MLX_EINVAL, __VA_ARGS__)

/* Leave the call if it cannot be made now, or if a pointer is NULL. */
#define BEGIN_CALL                                         \
  do {                                                     \
    cow_error_clear();                                     \
    cow_mlx_status status_ = cow_runtime_check(OPERATION); \
    if (status_ != COW_MLX_OK) return status_;             \
  } while (0)
#define REQUIRE(pointer) \
  if (!(pointer)) INVALID("%s: %s is NULL", OPERATION, #pointer)
#define REQUIRE_BUFFER(buffer, capacity) \
  if (!(buffer) && (capacity) > 0)       \
  INVALID("%s: %s is NULL, but %s is %zu", OPERATION, #buffer, #capacity, (size_t)(capacity))
#define TRY(call)                              \
  do {                                         \
    cow_mlx_status status_ = (call);           \
    if (status_ != COW_MLX_OK) return status_; \
  } while (0)

#define CALL(request) cow_runtime_call(&(request), OPERATION)

/* Lengths beyond these are taken for mistakes, such as (size_t)-2. */
#define MAX_BYTES (SIZE_MAX / 2)
#define MAX_TOKENS ((size_t)1 << 31)

static cow_text text_of(const char* data, size_t length) {
  cow_text text = {data, length == COW_MLX_NUL && data ? strlen(data) : length};
  return text;
}

#define REQUIRE_TEXT(text, length)                                         \
  if (!(text) && (length) > 0)                                             \
    INVALID("%s: %s is NULL, but %s is not 0", OPERATION, #text, #length); \
  if ((length) > MAX_BYTES && (length) != COW_MLX_NUL)                     \
  INVALID("%s: %s is %zu, more than any text", OPERATION, #length, (size_t)(length))
#define REQUIRE_TOKENS(tokens, count)                                       \
  if (!(tokens) && (count) > 0)                                             \
    INVALID("%s: %s is NULL, but %s is not 0", OPERATION, #tokens, #count); \
  if ((count) > MAX_TOKENS)                                                 \
  INVALID("%s: %s is %zu, more than any sequence", OPERATION, #count, (size_t)(count))
#define REQUIRE_PROMPT(tokens, count)                                                           \
  if (!(count)) INVALID("%s: %s is 0, but a prompt has at least one token", OPERATION, #count); \
  REQUIRE_TOKENS(tokens, count)

/* ---------------------------------------------------------------- Runtime */

cow_mlx_status cow_mlx_runtime_info(char* buffer, size_t capacity, size_t* length) {
  BEGIN_CALL;
  REQUIRE_BUFFER(buffer, capacity);
  REQUIRE(length);
  cow_request r = {.op = COW_OP_RUNTIME_INFO, .args.text_out = {buffer, capacity, length}};
  return CALL(r);
}

cow_mlx_status cow_mlx_memory_trim(void) {
  BEGIN_CALL;
  cow_request r = {.op = COW_OP_MEMORY_TRIM};
  return CALL(r);
}

/* ----------------------------------------------------------------- Models */

static bool deliver_progress(const cow_request* r) {
  const cow_mlx_model_params* params = r->args.model_params;
  return !params->progress || params->progress(r->event.fraction, r->event.text, params->user_data);
}

cow_mlx_status cow_mlx_model_load(const char* path, const cow_mlx_model_params* params,
                                  cow_mlx_model* out) {
  BEGIN_CALL;
  REQUIRE(path);
  REQUIRE(out);
  cow_mlx_model_params effective;
  TRY(COW_READ_PARAMS(model, OPERATION, params, &effective));
  cow_request r = {.op = COW_OP_MODEL_LOAD,
                   .deliver = deliver_progress,
                   .args = {.path = path, .model_params = &effective, .handle_out = out}};
  return CALL(r);
}

cow_mlx_status cow_mlx_model_free(cow_mlx_model model) {
  BEGIN_CALL;
  cow_request r = {.op = COW_OP_MODEL_FREE, .args.handle = model};
  return CALL(r);
}

cow_mlx_status cow_mlx_model_info(cow_mlx_model model, char* buffer, size_t capacity,
                                  size_t* length) {
  BEGIN_CALL;
  REQUIRE_BUFFER(buffer, capacity);
  REQUIRE(length);
  cow_request r = {.op = COW_OP_MODEL_INFO,
                   .args = {.handle = model, .text_out = {buffer, capacity, length}}};
  return CALL(r);
}

cow_mlx_status cow_mlx_model_tokenize(cow_mlx_model model, const char* text, size_t length,
                                      uint32_t flags, int32_t* tokens, size_t capacity,
                                      size_t* count) {
  BEGIN_CALL;
  REQUIRE_TEXT(text, length);
  REQUIRE_BUFFER(tokens, capacity);
  REQUIRE(count);
  cow_request r = {.op = COW_OP_MODEL_TOKENIZE,
                   .args = {.handle = model,
                            .text = text_of(text, length),
                            .flags = flags,
                            .tokens_out = {tokens, capacity, count}}};
  return CALL(r);
}

cow_mlx_status cow_mlx_model_detokenize(cow_mlx_model model, const int32_t* tokens, size_t count,
                                        uint32_t flags, char* buffer, size_t capacity,
                                        size_t* length) {
  BEGIN_CALL;
  REQUIRE_TOKENS(tokens, count);
  REQUIRE_BUFFER(buffer, capacity);
  REQUIRE(length);
  cow_request r = {.op = COW_OP_MODEL_DETOKENIZE,
                   .args = {.handle = model,
                            .tokens = {tokens, count},
                            .flags = flags,
                            .text_out = {buffer, capacity, length}}};
  return CALL(r);
}

cow_mlx_status cow_mlx_model_is_end(cow_mlx_model model, int32_t token, bool* out) {
  BEGIN_CALL;
  REQUIRE(out);
  cow_request r = {.op = COW_OP_MODEL_IS_END,
                   .args = {.handle = model, .token = token, .bool_out = out}};
  return CALL(r);
}

cow_mlx_status cow_mlx_model_chat_prompt(cow_mlx_model model, const char* messages_json,
                                         size_t length, const char* options_json, int32_t* tokens,
                                         size_t capacity, size_t* count) {
  BEGIN_CALL;
  REQUIRE(messages_json);
  REQUIRE_TEXT(messages_json, length);
  REQUIRE_BUFFER(tokens, capacity);
  REQUIRE(count);
  cow_request r = {.op = COW_OP_MODEL_CHAT_PROMPT,
                   .args = {.handle = model,
                            .text = text_of(messages_json, length),
                            .options = text_of(options_json, options_json ? COW_MLX_NUL : 0),
                            .tokens_out = {tokens, capacity, count}}};
  return CALL(r);
}

/* How many values a buffer of floats can hold at most. */
#define MAX_FLOATS (SIZE_MAX / 2 / sizeof(float))
#define REQUIRE_CAPACITY(capacity) \
  if ((capacity) > MAX_FLOATS)     \
  INVALID("%s: %s is %zu, more than any buffer", OPERATION, #capacity, (size_t)(capacity))

cow_mlx_status cow_mlx_model_embed(cow_mlx_model model, const cow_mlx_text* texts, size_t count,
                                   const cow_mlx_embed_params* params, float* out, size_t capacity,
                                   size_t* dims) {
  BEGIN_CALL;
  if (!texts && count > 0) INVALID("%s: texts is NULL, but count is not 0", OPERATION);
  if (count > MAX_TOKENS) INVALID("%s: count is %zu, more than any batch", OPERATION, count);
  for (size_t i = 0; i < count; i++) {
    if (!texts[i].data && texts[i].length > 0) {
      INVALID("%s: texts[%zu].data is NULL, but its length is not 0", OPERATION, i);
    }
    if (texts[i].length > MAX_BYTES && texts[i].length != COW_MLX_NUL) {
      INVALID("%s: texts[%zu].length is %zu, more than any text", OPERATION, i, texts[i].length);
    }
  }
  REQUIRE_BUFFER(out, capacity);
  REQUIRE_CAPACITY(capacity);
  REQUIRE(dims);
  cow_mlx_embed_params effective;
  TRY(COW_READ_PARAMS(embed, OPERATION, params, &effective));
  cow_request r = {.op = COW_OP_MODEL_EMBED,
                   .args = {.handle = model,
                            .texts = texts,
                            .count = count,
                            .embed_params = &effective,
                            .floats_out = {out, capacity, dims}}};
  return CALL(r);
}

/* --------------------------------------------------------------- Adapters */

cow_mlx_status cow_mlx_adapter_load(cow_mlx_model model, const char* path, float scale,
                                    cow_mlx_adapter* out) {
  BEGIN_CALL;
  REQUIRE(path);
  REQUIRE(out);
  cow_request r = {.op = COW_OP_ADAPTER_LOAD,
                   .args = {.handle = model, .path = path, .scale = scale, .handle_out = out}};
  return CALL(r);
}

cow_mlx_status cow_mlx_adapter_free(cow_mlx_adapter adapter) {
  BEGIN_CALL;
  cow_request r = {.op = COW_OP_ADAPTER_FREE, .args.handle = adapter};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_set_adapter(cow_mlx_context context, cow_mlx_adapter adapter) {
  BEGIN_CALL;
  cow_request r = {.op = COW_OP_CONTEXT_SET_ADAPTER, .args = {.handle = context, .other = adapter}};
  return CALL(r);
}

/* --------------------------------------------------------------- Contexts */

cow_mlx_status cow_mlx_context_create(cow_mlx_model model, const cow_mlx_context_params* params,
                                      cow_mlx_context* out) {
  BEGIN_CALL;
  REQUIRE(out);
  cow_mlx_context_params effective;
  TRY(COW_READ_PARAMS(context, OPERATION, params, &effective));
  cow_request r = {.op = COW_OP_CONTEXT_CREATE,
                   .args = {.handle = model, .context_params = &effective, .handle_out = out}};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_free(cow_mlx_context context) {
  BEGIN_CALL;
  cow_request r = {.op = COW_OP_CONTEXT_FREE, .args.handle = context};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_fork(cow_mlx_context context, cow_mlx_context* out) {
  BEGIN_CALL;
  REQUIRE(out);
  cow_request r = {.op = COW_OP_CONTEXT_FORK, .args = {.handle = context, .handle_out = out}};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_checkpoint(cow_mlx_context context, cow_mlx_checkpoint* out) {
  BEGIN_CALL;
  REQUIRE(out);
  cow_request r = {.op = COW_OP_CONTEXT_CHECKPOINT, .args = {.handle = context, .handle_out = out}};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_rewind(cow_mlx_context context, cow_mlx_checkpoint checkpoint) {
  BEGIN_CALL;
  cow_request r = {.op = COW_OP_CONTEXT_REWIND, .args = {.handle = context, .other = checkpoint}};
  return CALL(r);
}

cow_mlx_status cow_mlx_checkpoint_free(cow_mlx_checkpoint checkpoint) {
  BEGIN_CALL;
  cow_request r = {.op = COW_OP_CHECKPOINT_FREE, .args.handle = checkpoint};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_save(cow_mlx_context context, const char* path) {
  BEGIN_CALL;
  REQUIRE(path);
  cow_request r = {.op = COW_OP_CONTEXT_SAVE,
                   .cancel_epoch = cow_cancel_epoch(context),
                   .args = {.handle = context, .path = path}};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_load(cow_mlx_context context, const char* path) {
  BEGIN_CALL;
  REQUIRE(path);
  cow_request r = {.op = COW_OP_CONTEXT_LOAD,
                   .cancel_epoch = cow_cancel_epoch(context),
                   .args = {.handle = context, .path = path}};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_reset(cow_mlx_context context) {
  BEGIN_CALL;
  cow_request r = {.op = COW_OP_CONTEXT_RESET, .args.handle = context};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_tokens(cow_mlx_context context, int32_t* tokens, size_t capacity,
                                      size_t* count) {
  BEGIN_CALL;
  REQUIRE_BUFFER(tokens, capacity);
  REQUIRE(count);
  cow_request r = {.op = COW_OP_CONTEXT_TOKENS,
                   .args = {.handle = context, .tokens_out = {tokens, capacity, count}}};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_trim_end(cow_mlx_context context, size_t count, size_t* trimmed) {
  BEGIN_CALL;
  REQUIRE(trimmed);
  cow_request r = {.op = COW_OP_CONTEXT_TRIM_END,
                   .cancel_epoch = cow_cancel_epoch(context),
                   .args = {.handle = context, .count = count, .count_out = trimmed}};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_trim_front(cow_mlx_context context, size_t count, size_t* trimmed) {
  BEGIN_CALL;
  REQUIRE(trimmed);
  cow_request r = {.op = COW_OP_CONTEXT_TRIM_FRONT,
                   .cancel_epoch = cow_cancel_epoch(context),
                   .args = {.handle = context, .count = count, .count_out = trimmed}};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_info(cow_mlx_context context, char* buffer, size_t capacity,
                                    size_t* length) {
  BEGIN_CALL;
  REQUIRE_BUFFER(buffer, capacity);
  REQUIRE(length);
  cow_request r = {.op = COW_OP_CONTEXT_INFO,
                   .args = {.handle = context, .text_out = {buffer, capacity, length}}};
  return CALL(r);
}

/* ------------------------------------------------------------- Generation */

static bool deliver_generation(const cow_request* r) {
  const cow_mlx_generation_params* params = r->args.generation_params;
  const cow_event* event = &r->event;
  if (event->kind == COW_EVENT_TEXT) {
    return !r->on_text || r->on_text(event->text, event->length, r->user_data);
  }
  return !params->prompt_progress ||
         params->prompt_progress(event->processed, event->total, params->user_data);
}

cow_mlx_status cow_mlx_context_begin(cow_mlx_context context, const int32_t* tokens, size_t count,
                                     const cow_mlx_generation_params* params) {
  BEGIN_CALL;
  REQUIRE_PROMPT(tokens, count);
  cow_mlx_generation_params effective;
  TRY(COW_READ_PARAMS(generation, OPERATION, params, &effective));
  cow_request r = {
      .op = COW_OP_CONTEXT_BEGIN,
      .cancel_epoch = cow_cancel_epoch(context),
      .deliver = deliver_generation,
      .args = {.handle = context, .tokens = {tokens, count}, .generation_params = &effective}};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_next(cow_mlx_context context, char* text, size_t capacity,
                                    size_t* length, cow_mlx_piece* piece) {
  BEGIN_CALL;
  REQUIRE_BUFFER(text, capacity);
  REQUIRE(length);
  if (piece) TRY(cow_params_check_out(OPERATION, "piece", piece));
  cow_mlx_piece result = {.struct_size = sizeof result};
  cow_request r = {
      .op = COW_OP_CONTEXT_NEXT,
      .args = {.handle = context, .text_out = {text, capacity, length}, .piece_out = &result}};
  cow_mlx_status status = CALL(r);
  if (piece && status >= COW_MLX_OK) cow_params_write(piece, &result, sizeof result);
  return status;
}

cow_mlx_status cow_mlx_context_poll(cow_mlx_context context, uint32_t timeout_ms) {
  BEGIN_CALL;
  cow_request r = {.op = COW_OP_CONTEXT_POLL,
                   .args = {.handle = context, .timeout_ms = timeout_ms}};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_wake_fd(cow_mlx_context context, int32_t* out) {
  BEGIN_CALL;
  REQUIRE(out);
  cow_request r = {.op = COW_OP_CONTEXT_WAKE_FD, .args = {.handle = context, .fd_out = out}};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_generate(cow_mlx_context context, const int32_t* tokens,
                                        size_t count, const cow_mlx_generation_params* params,
                                        cow_mlx_text_fn on_text, void* user_data,
                                        cow_mlx_stats* stats) {
  BEGIN_CALL;
  REQUIRE_PROMPT(tokens, count);
  if (stats) TRY(cow_params_check_out(OPERATION, "stats", stats));
  cow_mlx_generation_params effective;
  TRY(COW_READ_PARAMS(generation, OPERATION, params, &effective));
  cow_mlx_stats result = {.struct_size = sizeof result};
  cow_request r = {.op = COW_OP_CONTEXT_GENERATE,
                   .cancel_epoch = cow_cancel_epoch(context),
                   .deliver = deliver_generation,
                   .on_text = on_text,
                   .user_data = user_data,
                   .args = {.handle = context,
                            .tokens = {tokens, count},
                            .generation_params = &effective,
                            .stats_out = &result}};
  cow_mlx_status status = CALL(r);
  if (stats && status == COW_MLX_OK) cow_params_write(stats, &result, sizeof result);
  return status;
}

static bool deliver_chat(const cow_request* r) {
  const cow_event* event = &r->event;
  if (event->kind != COW_EVENT_CHAT) return deliver_generation(r);
  cow_mlx_event told = {.struct_size = sizeof told,
                        .kind = event->chat_kind,
                        .text = event->text,
                        .length = event->length,
                        .name = event->name ? event->name : "",
                        .finish = event->finish};
  return !r->on_event || r->on_event(&told, r->user_data);
}

cow_mlx_status cow_mlx_context_chat(cow_mlx_context context, const char* messages_json,
                                    size_t length, const cow_mlx_generation_params* params,
                                    const char* options_json, cow_mlx_event_fn on_event,
                                    void* user_data, cow_mlx_stats* stats) {
  BEGIN_CALL;
  REQUIRE(messages_json);
  REQUIRE_TEXT(messages_json, length);
  if (stats) TRY(cow_params_check_out(OPERATION, "stats", stats));
  cow_mlx_generation_params effective;
  TRY(COW_READ_PARAMS(generation, OPERATION, params, &effective));
  cow_mlx_stats result = {.struct_size = sizeof result};
  cow_request r = {.op = COW_OP_CONTEXT_CHAT,
                   .cancel_epoch = cow_cancel_epoch(context),
                   .deliver = deliver_chat,
                   .on_event = on_event,
                   .user_data = user_data,
                   .args = {.handle = context,
                            .text = text_of(messages_json, length),
                            .options = text_of(options_json, options_json ? COW_MLX_NUL : 0),
                            .generation_params = &effective,
                            .stats_out = &result}};
  cow_mlx_status status = CALL(r);
  if (stats && status == COW_MLX_OK) cow_params_write(stats, &result, sizeof result);
  return status;
}

cow_mlx_status cow_mlx_context_logprobs(cow_mlx_context context, int32_t* tokens, float* logprobs,
                                        size_t capacity, size_t* count) {
  BEGIN_CALL;
  REQUIRE_BUFFER(tokens, capacity);
  REQUIRE_BUFFER(logprobs, capacity);
  REQUIRE_CAPACITY(capacity);
  REQUIRE(count);
  cow_request r = {.op = COW_OP_CONTEXT_LOGPROBS,
                   .args = {.handle = context,
                            .tokens_out = {tokens, capacity, count},
                            .floats_out = {logprobs, capacity, count}}};
  return CALL(r);
}

cow_mlx_status cow_mlx_context_logits(cow_mlx_context context, float* logits, size_t capacity,
                                      size_t* count) {
  BEGIN_CALL;
  REQUIRE_BUFFER(logits, capacity);
  REQUIRE_CAPACITY(capacity);
  REQUIRE(count);
  cow_request r = {.op = COW_OP_CONTEXT_LOGITS,
                   .args = {.handle = context, .floats_out = {logits, capacity, count}}};
  return CALL(r);
}

/* In a signal handler even the thread's message is out of reach: its first use may allocate. */
cow_mlx_status cow_mlx_context_cancel(cow_mlx_context context) {
  cow_mlx_status status = cow_runtime_status();
  if (status != COW_MLX_OK) return status;
  if (!cow_cancel_request(context)) return COW_MLX_EHANDLE;
  cow_queue_wake();
  return COW_MLX_OK;
}

cow_mlx_status cow_mlx_context_stats(cow_mlx_context context, cow_mlx_stats* stats) {
  BEGIN_CALL;
  REQUIRE(stats);
  TRY(cow_params_check_out(OPERATION, "stats", stats));
  cow_mlx_stats result = {.struct_size = sizeof result};
  cow_request r = {.op = COW_OP_CONTEXT_STATS, .args = {.handle = context, .stats_out = &result}};
  cow_mlx_status status = CALL(r);
  if (status == COW_MLX_OK) cow_params_write(stats, &result, sizeof result);
  return status;
}
