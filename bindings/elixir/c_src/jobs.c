#include "jobs.h"

#include <string.h>

#include "hand_calls.h"
#include "library.h"

static ErlNifResourceType* type;
static _Thread_local cow_job* here;

cow_job* cow_job_here(void) { return here; }

static void cancel(cow_object* subject) {
  int64_t handle = atomic_load(&subject->handle);
  if (!handle) return;
  if (subject->kind == COW_KIND_CONTEXT) api.context_cancel((cow_mlx_context)handle);
  if (subject->kind == COW_KIND_TRAINING) api.training_cancel((cow_mlx_training)handle);
}

/* The owner has ended. */
static void abandon(ErlNifEnv* env, void* memory, ErlNifPid* owner, ErlNifMonitor* monitor) {
  (void)env, (void)owner, (void)monitor;
  cow_job* job = memory;
  atomic_store(&job->abandoned, true);
  cancel(job->subject);
  enif_mutex_lock(job->lock);
  enif_cond_broadcast(job->answered);
  enif_mutex_unlock(job->lock);
}

static void destroy(ErlNifEnv* env, void* memory) {
  (void)env;
  cow_job* job = memory;
  if (job->subject) enif_release_resource(job->subject);
  if (job->env) enif_free_env(job->env);
  if (job->messages) enif_free_env(job->messages);
  if (job->answered) enif_cond_destroy(job->answered);
  if (job->lock) enif_mutex_destroy(job->lock);
}

bool cow_jobs_open(ErlNifEnv* env) {
  ErlNifResourceFlags flags = ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER;
  ErlNifResourceTypeInit init = {.dtor = destroy, .down = abandon};
  type = enif_open_resource_type_x(env, "cow_mlx_job", &init, flags, NULL);
  return type != NULL;
}

void cow_job_send(cow_job* job, ERL_NIF_TERM message) {
  ERL_NIF_TERM ref = enif_make_copy(job->messages, job->ref);
  enif_send(NULL, &job->owner, job->messages, enif_make_tuple2(job->messages, ref, message));
  enif_clear_env(job->messages);
}

bool cow_job_ask(cow_job* job, ERL_NIF_TERM message, cow_answer_fn read, void* room, size_t count) {
  enif_mutex_lock(job->lock);
  job->read = read;
  job->room = room;
  job->room_count = count;
  job->has_answer = false;
  enif_mutex_unlock(job->lock);
  cow_job_send(job, message);
  enif_mutex_lock(job->lock);
  while (!job->has_answer && !atomic_load(&job->abandoned)) {
    enif_cond_wait(job->answered, job->lock);
  }
  bool given = job->has_answer && !job->is_refused;
  job->read = NULL;
  enif_mutex_unlock(job->lock);
  return given;
}

static void run(cow_task* task) {
  cow_job* job = (cow_job*)task;
  cow_frame frame = {.env = job->env, .count = job->count, .arguments = job->arguments};
  if (!atomic_load(&job->abandoned)) {
    here = job;
    ERL_NIF_TERM result = job->call->make(&frame);
    here = NULL;
    cow_frame_close(&frame);
    if (job->subject) enif_demonitor_process(NULL, job, &job->monitor);
    /* A call that returns at once has begun something, though its owner may have ended before. */
    bool has_begun = job->subject && job->call->way == COW_DIRECT;
    if (has_begun && atomic_load(&job->abandoned)) cancel(job->subject);
    enif_send(NULL, &job->owner, job->env, enif_make_tuple2(job->env, job->ref, result));
  }
  enif_release_resource(job);
}

/* Watch the owner of a call on a context or a training, which can be cancelled. */
static bool watch(cow_job* job) {
  bool has_subject = job->count && job->call->way != COW_READS;
  cow_object* subject = has_subject ? cow_object_of(job->env, job->arguments[0]) : NULL;
  bool is_watched =
      subject && (subject->kind == COW_KIND_CONTEXT || subject->kind == COW_KIND_TRAINING);
  if (!is_watched) return true;
  job->lock = enif_mutex_create("cow_mlx_job");
  job->answered = enif_cond_create("cow_mlx_job");
  job->messages = enif_alloc_env();
  if (!job->lock || !job->answered || !job->messages) return false;
  job->subject = subject;
  enif_keep_resource(subject);
  return true;
}

static const cow_call* among(const cow_call* calls, size_t count, const char* name) {
  for (size_t i = 0; i < count; i++) {
    if (strcmp(calls[i].name, name) == 0) return &calls[i];
  }
  return NULL;
}

/* The call of a name and a list of arguments; NULL: problem is the result. */
static const cow_call* find(ErlNifEnv* env, ERL_NIF_TERM name, ERL_NIF_TERM list,
                            ERL_NIF_TERM arguments[8], ERL_NIF_TERM* problem) {
  char text[64];
  unsigned length;
  const cow_call* call = NULL;
  if (enif_get_atom(env, name, text, sizeof text, ERL_NIF_LATIN1)) {
    call = among(cow_generated_calls, cow_generated_count, text);
    if (!call) call = among(cow_hand_calls, cow_hand_count, text);
  }
  if (!call || !enif_get_list_length(env, list, &length) || (int)length != call->arity) {
    *problem = enif_make_badarg(env);
    return NULL;
  }
  if (!cow_library_is_open()) {
    *problem = cow_problem(env, "not_running", "the library is not open; start a runtime first");
    return NULL;
  }
  ERL_NIF_TERM head;
  for (int i = 0; enif_get_list_cell(env, list, &head, &list); i++) arguments[i] = head;
  return call;
}

ERL_NIF_TERM cow_nif_direct(ErlNifEnv* env, int count, const ERL_NIF_TERM given[]) {
  (void)count;
  ERL_NIF_TERM arguments[8], problem;
  const cow_call* call = find(env, given[0], given[1], arguments, &problem);
  if (!call) return problem;
  if (call->way != COW_DIRECT) return enif_make_badarg(env);
  cow_frame frame = {.env = env, .count = call->arity, .arguments = arguments};
  cow_report_as(env);
  ERL_NIF_TERM result = call->make(&frame);
  cow_report_as(NULL);
  cow_frame_close(&frame);
  return result;
}

static cow_job* new_job(ErlNifEnv* env, const cow_call* call, ERL_NIF_TERM ref,
                        const ERL_NIF_TERM* arguments) {
  cow_job* job = enif_alloc_resource(type, sizeof *job);
  if (!job) return NULL;
  memset(job, 0, sizeof *job);
  job->task.run = run;
  job->call = call;
  job->count = call->arity;
  enif_self(env, &job->owner);
  if (!(job->env = enif_alloc_env())) return job;
  job->ref = enif_make_copy(job->env, ref);
  for (int i = 0; i < call->arity; i++) {
    job->arguments[i] = enif_make_copy(job->env, arguments[i]);
  }
  return job;
}

ERL_NIF_TERM cow_nif_call(ErlNifEnv* env, int count, const ERL_NIF_TERM given[]) {
  (void)count;
  ERL_NIF_TERM arguments[8], problem;
  if (!enif_is_ref(env, given[0])) return enif_make_badarg(env);
  const cow_call* call = find(env, given[1], given[2], arguments, &problem);
  if (!call) return problem;
  cow_job* job = new_job(env, call, given[0], arguments);
  if (!job || !job->env || !watch(job)) {
    if (job) enif_release_resource(job);
    return cow_problem(env, "no_memory", "too little memory for a call");
  }
  if (job->subject) enif_monitor_process(env, job, &job->owner, &job->monitor);
  bool runs = call->way == COW_ALONE ? cow_workers_start(&job->task) : cow_workers_add(&job->task);
  if (runs) return cow_atom(env, "ok");
  if (job->subject) enif_demonitor_process(env, job, &job->monitor);
  enif_release_resource(job);
  return cow_problem(env, "no_threads", "no thread can be started for a call");
}

ERL_NIF_TERM cow_nif_calls(ErlNifEnv* env, int count, const ERL_NIF_TERM given[]) {
  (void)count, (void)given;
  static const char* const ways[] = {"waits", "direct", "alone", "reads"};
  ERL_NIF_TERM list = enif_make_list(env, 0);
  for (size_t i = 0; i < cow_generated_count + cow_hand_count; i++) {
    const cow_call* call = i < cow_generated_count ? &cow_generated_calls[i]
                                                   : &cow_hand_calls[i - cow_generated_count];
    ERL_NIF_TERM entry =
        enif_make_tuple3(env, cow_atom(env, call->name), enif_make_int(env, call->arity),
                         cow_atom(env, ways[call->way]));
    list = enif_make_list_cell(env, entry, list);
  }
  return list;
}

ERL_NIF_TERM cow_nif_answer(ErlNifEnv* env, int count, const ERL_NIF_TERM given[]) {
  (void)count;
  cow_job* job;
  if (!enif_get_resource(env, given[0], type, (void**)&job)) return enif_make_badarg(env);
  enif_mutex_lock(job->lock);
  bool asked = job->read && !job->has_answer;
  bool refuses = cow_is_atom(env, given[1], "nil");
  bool taken = asked && (refuses || job->read(env, given[1], job->room, job->room_count));
  if (taken) {
    job->has_answer = true;
    job->is_refused = refuses;
    enif_cond_broadcast(job->answered);
  }
  enif_mutex_unlock(job->lock);
  return taken ? cow_atom(env, "ok") : enif_make_badarg(env);
}
