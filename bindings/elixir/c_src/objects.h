/* Objects of the library as terms. A process that ends, or the collector, frees them. */
#ifndef COW_NIF_OBJECTS_H
#define COW_NIF_OBJECTS_H

#include <erl_nif.h>
#include <stdatomic.h>
#include <stdint.h>

#include "cow_mlx.h"
#include "workers.h"

typedef enum cow_kind {
  COW_KIND_MODEL,
  COW_KIND_CONTEXT,
  COW_KIND_ADAPTER,
  COW_KIND_CHECKPOINT,
  COW_KIND_PROGRAM,
  COW_KIND_TRAINING,
  COW_KIND_MEDIA,
  COW_KIND_ARRAY,
  COW_KINDS
} cow_kind;

/* Progress of a prompt or a load, which polls report. */
typedef struct cow_progress {
  double done;
  double total;
  char stage[32];
  bool is_new;
} cow_progress;

/* A handle that is freed behind its last term, by a worker: no destructor waits. */
typedef struct cow_release {
  cow_task task;
  cow_kind kind;
  int64_t handle;
} cow_release;

typedef struct cow_object {
  cow_kind kind;
  _Atomic int64_t handle; /* 0: freed */
  cow_release* release;
  cow_progress progress; /* of a context or a model; one process follows it */
  atomic_int descriptor; /* our copy of wake_fd, or -1 */
} cow_object;

bool cow_objects_open(ErlNifEnv* env);

/* "model" of COW_KIND_MODEL. */
const char* cow_kind_name(cow_kind kind);

/* A new object without a handle, or NULL. Its owner gives it to the collector, see
 * enif_release_resource(). */
cow_object* cow_object_new(cow_kind kind);

/* A term of a new handle; no memory frees the handle, and 0 is returned. */
ERL_NIF_TERM cow_object_term(ErlNifEnv* env, cow_kind kind, int64_t handle);

/* The object of a term, or NULL. */
cow_object* cow_object_of(ErlNifEnv* env, ERL_NIF_TERM term);

/* Take the handle out of an object, which has none then. */
int64_t cow_object_take(cow_object* object);

/* Free a handle on this thread, which may wait. */
cow_mlx_status cow_handle_free(cow_kind kind, int64_t handle);

#endif
