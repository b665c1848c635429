/* The calls that return at once: each checks and copies what it is given, and sends it. */
#include "base/checks.h"
#include "calls/detached.h"
#include "base/open_handles.h"

static cow_mlx_status no_memory(const char* operation) {
  return cow_error(COW_MLX_ENOMEM, operation, COW_REASON_no_memory, NULL,
                   "there is too little memory for the call");
}

/* A call on a context, with copies of params. */
static cow_detached* on_context(cow_op op, cow_mlx_context context,
                                const cow_mlx_generation_params* params) {
  cow_detached* it = cow_detached_new(op);
  if (!it) return NULL;
  it->request.context = context;
  it->request.callbacks.prompt = params->prompt_progress;
  it->request.callbacks.prompt_data = params->user_data;
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
      .tokens = {cow_detached_copy(it, tokens, count * sizeof *tokens), count},
      .params = &it->params.generation,
  };
  return cow_detached_send(it, OPERATION);
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
  it->request.callbacks.event = cow_detached_on_event;
  it->args.chat = (cow_context_chat_args){
      .context = context,
      .messages_json = {cow_detached_copy(it, messages.data, messages.length), messages.length},
      .params = &it->params.generation,
      .options_json = cow_detached_string(it, options_json),
      .stats = &it->stats,
  };
  return cow_detached_send(it, OPERATION);
}

static cow_detached* load(const char* path, const cow_mlx_model_params* params) {
  cow_detached* it = cow_detached_new(COW_OP_MODEL_LOAD);
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
  cow_mlx_model model = it->request.model = cow_open_handle(COW_KIND_MODEL);
  if (!model) {
    cow_detached_free(it);
    return cow_error(
        COW_MLX_ENOMEM, OPERATION, COW_REASON_no_handles,
        DETAILS(TEXT_DETAIL("kind", "model"), SIZE_DETAIL("limit", COW_HANDLE_SLOTS - 1)),
        "%d models are open, which is the most there can be", COW_HANDLE_SLOTS - 1);
  }
  cow_mlx_status status = cow_detached_send(it, OPERATION);
  if (status == COW_MLX_OK) {
    *out = model;
  } else {
    cow_close_handle(model);
  }
  return status;
}
