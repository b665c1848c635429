/* The NIF of CowMLX.NIF. No call of it waits: what takes time runs on workers, or in the library
 * while the node's poller watches a descriptor. */
#include <erl_nif.h>
#include <string.h>

#include "calls.h"
#include "followers.h"
#include "hand_calls.h"
#include "jobs.h"
#include "library.h"
#include "objects.h"

/* open(Path): ok, or a problem. */
static ERL_NIF_TERM open_library(ErlNifEnv* env, int count, const ERL_NIF_TERM given[]) {
  char problem[512];
  cow_frame frame = {.env = env, .count = count, .arguments = given};
  const char* path = cow_take_string(&frame, 0, false);
  ERL_NIF_TERM result = cow_atom(env, "ok");
  if (!path) {
    result = cow_refusal(&frame);
  } else if (!cow_library_open(path, problem, sizeof problem)) {
    result = cow_problem(env, "library_mismatch", problem);
  }
  cow_frame_close(&frame);
  return result;
}

/* version(): the library's, or nil. */
static ERL_NIF_TERM version(ErlNifEnv* env, int count, const ERL_NIF_TERM given[]) {
  (void)count, (void)given;
  if (!cow_library_is_open()) return cow_atom(env, "nil");
  const char* text = api.version();
  return cow_bytes(env, text, strlen(text));
}

/* kind(Term): model, context, ...; nil for any other term. */
static ERL_NIF_TERM kind(ErlNifEnv* env, int count, const ERL_NIF_TERM given[]) {
  (void)count;
  cow_object* object = cow_object_of(env, given[0]);
  return cow_atom(env, object ? cow_kind_name(object->kind) : "nil");
}

/* Objects and threads of earlier code may live on, so a module is never upgraded to another. */
static int upgrade(ErlNifEnv* env, void** data, void** old, ERL_NIF_TERM info) {
  (void)env, (void)data, (void)old, (void)info;
  return 1;
}

static int load(ErlNifEnv* env, void** data, ERL_NIF_TERM info) {
  (void)data, (void)info;
  cow_library_pin();
  bool is_open = cow_objects_open(env) && cow_jobs_open(env) && cow_followers_open(env) &&
                 cow_arrays_open(env);
  return is_open ? 0 : 1;
}

/* A library is opened by code that runs when it is loaded, so on a dirty scheduler. */
static ErlNifFunc functions[] = {
    {"open", 1, open_library, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"version", 0, version, 0},
    {"kind", 1, kind, 0},
    {"calls", 0, cow_nif_calls, 0},
    {"call", 3, cow_nif_call, 0},
    {"direct", 2, cow_nif_direct, 0},
    {"answer", 2, cow_nif_answer, 0},
    {"follow", 1, cow_nif_follow, 0},
    {"take", 3, cow_nif_take, 0},
    {"leave", 1, cow_nif_leave, 0},
};

ERL_NIF_INIT(Elixir.CowMLX.NIF, functions, load, NULL, upgrade, NULL)
