#include <string.h>

#include "hand_calls.h"
#include "layouts.h"
#include "library.h"

static ErlNifPid listener;
static atomic_bool has_listener;

/* Of the NIF that runs on this thread, if it may report: a scheduler sends as its process. */
static _Thread_local ErlNifEnv* caller;

void cow_report_as(ErlNifEnv* env) { caller = env; }

/* Send {cow_mlx_log, Level, Message}. */
static void report(int32_t level, const char* message, void* user_data) {
  (void)user_data;
  bool is_scheduler = enif_thread_type() != ERL_NIF_THR_UNDEFINED;
  if (!atomic_load(&has_listener) || (is_scheduler && !caller)) return;
  ErlNifEnv* env = enif_alloc_env();
  if (!env) return;
  ERL_NIF_TERM text = cow_bytes(env, message, strlen(message));
  enif_send(is_scheduler ? caller : NULL, &listener, env,
            enif_make_tuple3(env, cow_atom(env, "cow_mlx_log"), enif_make_int(env, level), text));
  enif_free_env(env);
}

/* runtime_start(Params | nil, Pid | nil): the process gets messages of the log. */
ERL_NIF_TERM cow_make_runtime_start(cow_frame* frame) {
  cow_mlx_runtime_params params;
  api.runtime_params_init(&params, sizeof params);
  bool is_default = cow_is_atom(frame->env, frame->arguments[0], "nil");
  if (!is_default) cow_take_params(frame, 0, &cow_runtime_params_layout, &params);
  ErlNifPid pid;
  if (enif_get_local_pid(frame->env, frame->arguments[1], &pid)) {
    atomic_store(&has_listener, false);
    listener = pid;
    atomic_store(&has_listener, true);
    params.log = report;
  } else if (!cow_is_atom(frame->env, frame->arguments[1], "nil")) {
    cow_refuse(frame, 1, "a process of this node");
  }
  if (frame->refused) return cow_refusal(frame);
  bool is_plain = is_default && !params.log;
  return cow_result(frame->env, api.runtime_start(is_plain ? NULL : &params), 0);
}

/* free(Object): a second time does nothing. */
ERL_NIF_TERM cow_make_free(cow_frame* frame) {
  cow_object* object = cow_object_of(frame->env, frame->arguments[0]);
  if (!object) {
    cow_refuse(frame, 0, "an object of the library");
    return cow_refusal(frame);
  }
  int64_t handle = cow_object_take(object);
  return cow_result(frame->env, handle ? cow_handle_free(object->kind, handle) : COW_MLX_OK, 0);
}
