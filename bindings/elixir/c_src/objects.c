#include "objects.h"

#include <string.h>
#include <unistd.h>

#include "library.h"

static ErlNifResourceType* type;

static const char* const NAMES[COW_KINDS] = {"model",   "context",  "adapter", "checkpoint",
                                             "program", "training", "media",   "array"};

const char* cow_kind_name(cow_kind kind) { return NAMES[kind]; }

cow_mlx_status cow_handle_free(cow_kind kind, int64_t handle) {
  switch (kind) {
    case COW_KIND_MODEL:
      return api.model_free((cow_mlx_model)handle);
    case COW_KIND_CONTEXT:
      return api.context_free((cow_mlx_context)handle);
    case COW_KIND_ADAPTER:
      return api.adapter_free((cow_mlx_adapter)handle);
    case COW_KIND_CHECKPOINT:
      return api.checkpoint_free((cow_mlx_checkpoint)handle);
    case COW_KIND_PROGRAM:
      return api.program_free((cow_mlx_program)handle);
    case COW_KIND_TRAINING:
      return api.training_free((cow_mlx_training)handle);
    case COW_KIND_MEDIA:
      return api.media_free((cow_mlx_media)handle);
    default:
      return api.array_free(handle);
  }
}

static void release(cow_task* task) {
  cow_release* from = (cow_release*)task;
  cow_handle_free(from->kind, from->handle);
  enif_free(from);
}

static void destroy(ErlNifEnv* env, void* memory) {
  (void)env;
  cow_object* object = memory;
  int64_t handle = cow_object_take(object);
  int descriptor = atomic_load(&object->descriptor);
  if (descriptor >= 0) close(descriptor);
  if (handle && object->kind != COW_KIND_ARRAY) {
    object->release->handle = handle;
    cow_workers_leave(&object->release->task);
    return;
  }
  if (handle) api.array_free(handle); /* never waits */
  enif_free(object->release);
}

bool cow_objects_open(ErlNifEnv* env) {
  ErlNifResourceFlags flags = ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER;
  ErlNifResourceTypeInit init = {.dtor = destroy};
  type = enif_open_resource_type_x(env, "cow_mlx_object", &init, flags, NULL);
  return type != NULL;
}

cow_object* cow_object_new(cow_kind kind) {
  cow_release* later = NULL;
  if (kind != COW_KIND_ARRAY) {
    later = enif_alloc(sizeof *later);
    if (!later) return NULL;
    *later = (cow_release){.task = {.run = release}, .kind = kind};
  }
  cow_object* object = enif_alloc_resource(type, sizeof *object);
  if (!object) {
    enif_free(later);
    return NULL;
  }
  memset(object, 0, sizeof *object);
  object->kind = kind;
  object->release = later;
  atomic_init(&object->handle, 0);
  atomic_init(&object->descriptor, -1);
  return object;
}

ERL_NIF_TERM cow_object_term(ErlNifEnv* env, cow_kind kind, int64_t handle) {
  cow_object* object = cow_object_new(kind);
  if (!object) {
    cow_handle_free(kind, handle);
    return 0;
  }
  atomic_store(&object->handle, handle);
  ERL_NIF_TERM term = enif_make_resource(env, object);
  enif_release_resource(object);
  return term;
}

cow_object* cow_object_of(ErlNifEnv* env, ERL_NIF_TERM term) {
  void* object;
  return enif_get_resource(env, term, type, &object) ? object : NULL;
}

int64_t cow_object_take(cow_object* object) { return atomic_exchange(&object->handle, 0); }
