#define _GNU_SOURCE /* F_DUPFD_CLOEXEC */

#include "followers.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hand_calls.h"
#include "jobs.h"
#include "layouts.h"
#include "library.h"

enum { MOST_AT_ONCE = 32, TEXT = 512 };

typedef struct cow_follower {
  cow_object* object; /* kept */
  int descriptor;     /* a copy, which the stop callback closes */
  ErlNifMonitor monitor;
  atomic_bool has_left;
} cow_follower;

static ErlNifResourceType* type;

/* ------------------------------------------------------------------------------ Progress */

/* {progress, Done, Total, Stage} */
static ERL_NIF_TERM progress_term(ErlNifEnv* env, cow_progress* progress) {
  progress->is_new = false;
  return enif_make_tuple4(env, cow_atom(env, "progress"), cow_number(env, progress->done),
                          cow_number(env, progress->total),
                          cow_bytes(env, progress->stage, strlen(progress->stage)));
}

/* The job of context_take() that runs on this thread, or NULL. */
static cow_job* taking_job(void) {
  cow_job* job = cow_job_here();
  return job && job->call->make == cow_make_context_take ? job : NULL;
}

/* Polls report progress on their thread, which holds the object. */
static bool note_prompt(size_t processed, size_t total, void* user_data) {
  cow_progress progress = {(double)processed, (double)total, "prompt", true};
  cow_job* job = taking_job();
  if (job) {
    cow_job_send(job, progress_term(job->messages, &progress));
  } else {
    ((cow_object*)user_data)->progress = progress;
  }
  return true;
}

static bool note_load(float fraction, const char* stage, void* user_data) {
  cow_progress* progress = &((cow_object*)user_data)->progress;
  *progress = (cow_progress){.done = fraction, .total = 1, .is_new = true};
  snprintf(progress->stage, sizeof progress->stage, "%s", stage);
  return true;
}

/* -------------------------------------------------------------------------------- Logits */

/* Logits as a binary of all, or {Tokens, Logits}, two binaries of those that change. */
static bool read_logits(ErlNifEnv* env, ERL_NIF_TERM answer, void* room, size_t count) {
  ErlNifBinary tokens, values;
  const ERL_NIF_TERM* pair;
  int arity;
  if (enif_inspect_binary(env, answer, &values)) {
    if (values.size != count * sizeof(float)) return false;
    memcpy(room, values.data, values.size);
    return true;
  }
  if (!enif_get_tuple(env, answer, &arity, &pair) || arity != 2 ||
      !enif_inspect_binary(env, pair[0], &tokens) || !enif_inspect_binary(env, pair[1], &values) ||
      tokens.size != values.size || tokens.size % sizeof(int32_t) != 0) {
    return false;
  }
  float* logits = room;
  for (size_t place = 0; place < tokens.size; place += sizeof(int32_t)) {
    int32_t token;
    memcpy(&token, tokens.data + place, sizeof token);
    if (token < 0 || (size_t)token >= count) return false;
    memcpy(&logits[token], values.data + place, sizeof *logits);
  }
  return true;
}

/* Ask with {logits, Tokens, Logits, Job}. A poll by anyone else than context_take() has nobody to
 * ask, and cancels. */
static bool change_logits(const int32_t* tokens, size_t count, float* logits, size_t vocabulary,
                          void* user_data) {
  (void)user_data;
  cow_job* job = taking_job();
  if (!job) return false;
  ErlNifEnv* env = job->messages;
  ERL_NIF_TERM message = enif_make_tuple4(
      env, cow_atom(env, "logits"), cow_bytes(env, tokens, count * sizeof *tokens),
      cow_bytes(env, logits, vocabulary * sizeof *logits), enif_make_resource(env, job));
  return cow_job_ask(job, message, read_logits, logits, vocabulary);
}

/* -------------------------------------------------------------------------------- Begins */

static void take_generation_params(cow_frame* frame, int index, cow_object* context,
                                   cow_mlx_generation_params* params) {
  api.generation_params_init(params, sizeof *params);
  if (!cow_take_params(frame, index, &cow_generation_params_layout, params)) return;
  if (cow_wants(frame, index, "prompt_progress")) params->prompt_progress = note_prompt;
  if (cow_wants(frame, index, "logits_fn")) params->logits_fn = change_logits;
  params->user_data = context;
}

/* context_begin_async(Context, Tokens, Params) */
ERL_NIF_TERM cow_make_context_begin_async(cow_frame* frame) {
  cow_object* context = cow_take_object(frame, 0, COW_KIND_CONTEXT);
  cow_elements tokens = cow_take_elements(frame, 1, sizeof(int32_t));
  cow_mlx_generation_params params;
  take_generation_params(frame, 2, context, &params);
  if (frame->refused) return cow_refusal(frame);
  cow_mlx_context handle = (cow_mlx_context)atomic_load(&context->handle);
  return cow_result(frame->env, api.context_begin_async(handle, tokens.data, tokens.count, &params),
                    0);
}

/* context_chat_async(Context, Messages, Params, Options | nil) */
ERL_NIF_TERM cow_make_context_chat_async(cow_frame* frame) {
  cow_object* context = cow_take_object(frame, 0, COW_KIND_CONTEXT);
  cow_mlx_text messages = cow_take_text(frame, 1);
  const char* options = cow_take_string(frame, 3, true);
  cow_mlx_generation_params params;
  take_generation_params(frame, 2, context, &params);
  if (frame->refused) return cow_refusal(frame);
  cow_mlx_context handle = (cow_mlx_context)atomic_load(&context->handle);
  cow_mlx_status status =
      api.context_chat_async(handle, messages.data, messages.length, &params, options);
  return cow_result(frame->env, status, 0);
}

/* model_load_async(Path, Params): {ok, Model} */
ERL_NIF_TERM cow_make_model_load_async(cow_frame* frame) {
  const char* path = cow_take_string(frame, 0, false);
  cow_mlx_model_params params;
  api.model_params_init(&params, sizeof params);
  cow_take_params(frame, 1, &cow_model_params_layout, &params);
  if (frame->refused) return cow_refusal(frame);
  cow_object* object = cow_object_new(COW_KIND_MODEL);
  if (!object) return cow_problem(frame->env, "no_memory", "too little memory for a model");
  if (cow_wants(frame, 1, "progress")) {
    params.progress = note_load;
    params.user_data = object;
  }
  cow_mlx_model handle = 0;
  cow_mlx_status status = api.model_load_async(path, &params, &handle);
  if (status == COW_MLX_OK) atomic_store(&object->handle, handle);
  ERL_NIF_TERM result =
      status ? cow_failure(frame->env, status)
             : cow_result(frame->env, status, enif_make_resource(frame->env, object));
  enif_release_resource(object);
  return result;
}

/* ----------------------------------------------------------------------------- Following */

static cow_mlx_status wake_fd(cow_object* object, int32_t* out) {
  int64_t handle = atomic_load(&object->handle);
  return object->kind == COW_KIND_MODEL ? api.model_wake_fd((cow_mlx_model)handle, out)
                                        : api.context_wake_fd((cow_mlx_context)handle, out);
}

/* Keep a copy of the object's descriptor, since the library closes its own. */
static cow_mlx_status watch(cow_object* object) {
  if (atomic_load(&object->descriptor) >= 0) return COW_MLX_OK;
  int32_t descriptor;
  cow_mlx_status status = wake_fd(object, &descriptor);
  if (status) return status;
  int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0), none = -1;
  if (own >= 0 && !atomic_compare_exchange_strong(&object->descriptor, &none, own)) close(own);
  return COW_MLX_OK; /* follow() reports that there is none */
}

/* context_watch(Context): the context can be followed from now on. */
ERL_NIF_TERM cow_make_context_watch(cow_frame* frame) {
  cow_object* context = cow_take_object(frame, 0, COW_KIND_CONTEXT);
  if (frame->refused) return cow_refusal(frame);
  return cow_result(frame->env, watch(context), 0);
}

static void cancel(cow_follower* follower) {
  int64_t handle = atomic_load(&follower->object->handle);
  if (!handle) return;
  if (follower->object->kind == COW_KIND_CONTEXT) api.context_cancel((cow_mlx_context)handle);
}

/* Let the poller forget the descriptor, which then is closed; the first call only. */
static bool leave(ErlNifEnv* env, cow_follower* follower) {
  if (atomic_exchange(&follower->has_left, true)) return false;
  enif_select(env, follower->descriptor, ERL_NIF_SELECT_STOP, follower, NULL,
              cow_atom(env, "undefined"));
  return true;
}

static void lost_owner(ErlNifEnv* env, void* memory, ErlNifPid* owner, ErlNifMonitor* monitor) {
  (void)owner, (void)monitor;
  cancel(memory);
  leave(env, memory);
}

static void stop(ErlNifEnv* env, void* memory, ErlNifEvent descriptor, int is_direct) {
  (void)env, (void)memory, (void)is_direct;
  close(descriptor);
}

static void destroy(ErlNifEnv* env, void* memory) {
  (void)env;
  cow_follower* follower = memory;
  if (!atomic_load(&follower->has_left)) close(follower->descriptor); /* it was never watched */
  enif_release_resource(follower->object);
}

bool cow_followers_open(ErlNifEnv* env) {
  ErlNifResourceFlags flags = ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER;
  ErlNifResourceTypeInit init = {.dtor = destroy, .stop = stop, .down = lost_owner};
  type = enif_open_resource_type_x(env, "cow_mlx_follower", &init, flags, NULL);
  return type != NULL;
}

ERL_NIF_TERM cow_nif_follow(ErlNifEnv* env, int count, const ERL_NIF_TERM given[]) {
  (void)count;
  cow_object* object = cow_object_of(env, given[0]);
  bool is_loading = object && object->kind == COW_KIND_MODEL;
  if (!is_loading && !(object && object->kind == COW_KIND_CONTEXT)) return enif_make_badarg(env);
  if (is_loading) {
    cow_mlx_status status = watch(object);
    if (status) return cow_failure(env, status);
  }
  int own = atomic_load(&object->descriptor);
  own = own < 0 ? -1 : fcntl(own, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return cow_problem(env, "no_descriptors", "no descriptor can be opened");
  cow_follower* follower = enif_alloc_resource(type, sizeof *follower);
  if (!follower) {
    close(own);
    return cow_problem(env, "no_memory", "too little memory to follow a call");
  }
  memset(follower, 0, sizeof *follower);
  follower->object = object;
  follower->descriptor = own;
  enif_keep_resource(object);
  ErlNifPid self;
  enif_monitor_process(env, follower, enif_self(env, &self), &follower->monitor);
  ERL_NIF_TERM term = enif_make_resource(env, follower);
  enif_release_resource(follower);
  return enif_make_tuple2(env, cow_atom(env, "ok"), term);
}

ERL_NIF_TERM cow_nif_leave(ErlNifEnv* env, int count, const ERL_NIF_TERM given[]) {
  (void)count;
  cow_follower* follower;
  if (!enif_get_resource(env, given[0], type, (void**)&follower)) return enif_make_badarg(env);
  enif_demonitor_process(env, follower, &follower->monitor);
  leave(env, follower);
  return cow_atom(env, "ok");
}

/* -------------------------------------------------------------------------------- Taking */

/* {piece, Text, Token, Logprob, Finish}; at the end 'done' in the place of 'piece'. */
static ERL_NIF_TERM take_piece(ErlNifEnv* env, int64_t handle, cow_mlx_status* status) {
  char room[TEXT], *text = room;
  size_t length = 0;
  cow_mlx_piece piece = {.struct_size = sizeof piece};
  cow_mlx_context context = (cow_mlx_context)handle;
  *status = api.context_next(context, text, sizeof room, &length, &piece);
  if (*status == COW_MLX_EBUFFER && (text = enif_alloc(length + 1))) {
    *status = api.context_next(context, text, length + 1, &length, &piece);
  }
  ERL_NIF_TERM term;
  if (*status < 0) {
    term = cow_failure(env, *status);
  } else {
    term = enif_make_tuple5(env, cow_atom(env, *status == COW_MLX_DONE ? "done" : "piece"),
                            cow_bytes(env, text, length), enif_make_int(env, piece.token),
                            cow_number(env, piece.logprob), enif_make_int(env, piece.finish));
  }
  if (text != room) enif_free(text);
  return term;
}

/* {event, Kind, Text, Name, Finish}; at the end 'done' in the place of 'event'. */
static ERL_NIF_TERM take_event(ErlNifEnv* env, int64_t handle, cow_mlx_status* status) {
  cow_mlx_event event = {.struct_size = sizeof event};
  *status = api.context_next_event((cow_mlx_context)handle, &event);
  if (*status < 0) return cow_failure(env, *status);
  return enif_make_tuple5(env, cow_atom(env, *status == COW_MLX_DONE ? "done" : "event"),
                          enif_make_int(env, event.kind), cow_bytes(env, event.text, event.length),
                          cow_bytes(env, event.name, strlen(event.name)),
                          enif_make_int(env, event.finish));
}

static ERL_NIF_TERM take_load(ErlNifEnv* env, int64_t handle, cow_mlx_status* status) {
  *status = api.model_poll((cow_mlx_model)handle, 0);
  if (*status < 0) return cow_failure(env, *status);
  *status = COW_MLX_DONE;
  return cow_atom(env, "done");
}

typedef ERL_NIF_TERM (*cow_taking)(ErlNifEnv* env, int64_t handle, cow_mlx_status* status);

static cow_taking way_of(ErlNifEnv* env, ERL_NIF_TERM kind) {
  if (cow_is_atom(env, kind, "pieces")) return take_piece;
  if (cow_is_atom(env, kind, "events")) return take_event;
  return cow_is_atom(env, kind, "load") ? take_load : NULL;
}

static cow_mlx_status poll(const cow_object* object, int64_t handle) {
  return object->kind == COW_KIND_MODEL ? api.model_poll((cow_mlx_model)handle, 0)
                                        : api.context_poll((cow_mlx_context)handle, 0);
}

/* context_take(Context, pieces | events): a list of the next result, or of a failure. Before it come
 * {progress, Done, Total, Stage} and questions about logits. */
ERL_NIF_TERM cow_make_context_take(cow_frame* frame) {
  cow_object* context = cow_take_object(frame, 0, COW_KIND_CONTEXT);
  cow_taking take = frame->refused ? NULL : way_of(frame->env, frame->arguments[1]);
  if (!frame->refused && (!take || take == take_load)) cow_refuse(frame, 1, "pieces or events");
  if (frame->refused) return cow_refusal(frame);
  int64_t handle = atomic_load(&context->handle);
  api.context_poll((cow_mlx_context)handle, UINT32_MAX); /* what fails, fails below as well */
  cow_mlx_status status;
  return enif_make_list1(frame->env, take(frame->env, handle, &status));
}

/* Ask the poller for a message once there is more. */
static ERL_NIF_TERM wait(ErlNifEnv* env, cow_follower* follower, ERL_NIF_TERM ref) {
  int asked = enif_select(env, follower->descriptor, ERL_NIF_SELECT_READ, follower, NULL, ref);
  if (asked < 0) return cow_problem(env, "no_descriptors", "the descriptor cannot be watched");
  return cow_atom(env, "wait");
}

ERL_NIF_TERM cow_nif_take(ErlNifEnv* env, int count, const ERL_NIF_TERM given[]) {
  (void)count;
  cow_follower* follower;
  cow_taking take = way_of(env, given[2]);
  if (!enif_get_resource(env, given[0], type, (void**)&follower) || !take ||
      !enif_is_ref(env, given[1]) || atomic_load(&follower->has_left) ||
      (follower->object->kind == COW_KIND_MODEL) != (take == take_load)) {
    return enif_make_badarg(env);
  }
  cow_object* object = follower->object;
  ERL_NIF_TERM taken[2 * MOST_AT_ONCE];
  unsigned filled = 0;
  cow_mlx_status status = COW_MLX_OK;
  cow_report_as(env);
  for (int i = 0; i < MOST_AT_ONCE && status == COW_MLX_OK; i++) {
    int64_t handle = atomic_load(&object->handle);
    cow_mlx_status ready = poll(object, handle);
    if (object->progress.is_new) taken[filled++] = progress_term(env, &object->progress);
    if (ready == COW_MLX_ETIMEDOUT) break;
    taken[filled++] = take(env, handle, &status);
  }
  cow_report_as(NULL);
  if (filled) return enif_make_list_from_array(env, taken, filled);
  return wait(env, follower, given[1]);
}
