#include <string.h>

#include "hand_calls.h"
#include "jobs.h"
#include "layouts.h"
#include "library.h"

/* Send {event, Map}; false once the owner has ended. */
static bool report(const cow_mlx_training_event* event, void* user_data) {
  cow_job* job = user_data;
  ErlNifEnv* env = job->messages;
  ERL_NIF_TERM map = cow_struct_term(env, &cow_training_event_layout, event);
  cow_job_send(job, enif_make_tuple2(env, cow_atom(env, "event"), map));
  return !atomic_load(&job->abandoned);
}

/* Take the arrays of a batch out of their objects: ownership passes to the training. */
static bool take_batch(ErlNifEnv* env, ERL_NIF_TERM list, void* room, size_t count) {
  cow_mlx_array* batch = room;
  unsigned length;
  ERL_NIF_TERM head, rest = list;
  if (!enif_get_list_length(env, list, &length) || length != count) return false;
  while (enif_get_list_cell(env, rest, &head, &rest)) {
    cow_object* object = cow_object_of(env, head);
    if (!object || object->kind != COW_KIND_ARRAY) return false;
  }
  rest = list;
  for (unsigned i = 0; enif_get_list_cell(env, rest, &head, &rest); i++) {
    batch[i] = cow_object_take(cow_object_of(env, head));
  }
  return true;
}

/* Ask with {batch, Step, Count, Job}. */
static bool ask(size_t step, cow_mlx_array* inputs, size_t count, void* user_data) {
  cow_job* job = user_data;
  ErlNifEnv* env = job->messages;
  ERL_NIF_TERM message =
      enif_make_tuple4(env, cow_atom(env, "batch"), enif_make_uint64(env, step),
                       enif_make_uint64(env, count), enif_make_resource(env, job));
  return cow_job_ask(job, message, take_batch, inputs, count);
}

/* training_fit(Training, Params, Events): events are sent if that is true, and batches are asked
 * for if the params have next_batch. */
ERL_NIF_TERM cow_make_training_fit(cow_frame* frame) {
  cow_job* job = cow_job_here();
  cow_mlx_fit_params params;
  api.fit_params_init(&params, sizeof params);
  cow_mlx_training training = (cow_mlx_training)cow_take_handle(frame, 0, COW_KIND_TRAINING, false);
  cow_take_params(frame, 1, &cow_fit_params_layout, &params);
  bool events = cow_take_bool(frame, 2);
  if (frame->refused) return cow_refusal(frame);
  if (cow_wants(frame, 1, "next_batch")) {
    params.next_batch = ask;
    params.user_data = job;
  }
  cow_mlx_status status = api.training_fit(training, &params, events ? report : NULL, job);
  return cow_result(frame->env, status, 0);
}
