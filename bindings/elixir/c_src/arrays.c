#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dlpack.h"
#include "hand_calls.h"
#include "library.h"

enum { SMALL = 256 }; /* bytes that are copied into a separate binary */

/* A tensor that shares an array's memory, and outlives it. */
typedef struct cow_view {
  struct DLManagedTensorVersioned* tensor;
} cow_view;

static ErlNifResourceType* type;

static void destroy(ErlNifEnv* env, void* memory) {
  (void)env;
  cow_view* view = memory;
  if (view->tensor && view->tensor->deleter) view->tensor->deleter(view->tensor);
}

bool cow_arrays_open(ErlNifEnv* env) {
  ErlNifResourceFlags flags = ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER;
  ErlNifResourceTypeInit init = {.dtor = destroy};
  type = enif_open_resource_type_x(env, "cow_mlx_view", &init, flags, NULL);
  return type != NULL;
}

/* array_create({Dtype, Shape, Binary}) */
ERL_NIF_TERM cow_make_array_create(cow_frame* frame) {
  cow_mlx_tensor tensor;
  if (!cow_read_tensor(frame, frame->arguments[0], &tensor)) {
    cow_refuse(frame, 0, "{dtype, shape, binary} with at most 8 sizes");
    return cow_refusal(frame);
  }
  cow_mlx_array array = 0;
  cow_mlx_status status = api.array_create(&tensor, &array);
  ERL_NIF_TERM term = status ? 0 : cow_object_term(frame->env, COW_KIND_ARRAY, array);
  return cow_result(frame->env, status, term);
}

/* array_type(Array): {ok, {Dtype, Shape}} */
ERL_NIF_TERM cow_make_array_type(cow_frame* frame) {
  int32_t dtype = 0;
  int64_t shape[COW_MLX_MAX_RANK];
  size_t rank = 0;
  cow_mlx_array array = cow_take_handle(frame, 0, COW_KIND_ARRAY, false);
  if (frame->refused) return cow_refusal(frame);
  cow_mlx_status status = api.array_type(array, &dtype, shape, COW_MLX_MAX_RANK, &rank);
  ERL_NIF_TERM sizes = enif_make_list(frame->env, 0);
  for (size_t i = rank; status == COW_MLX_OK && i-- > 0;) {
    sizes = enif_make_list_cell(frame->env, enif_make_int64(frame->env, shape[i]), sizes);
  }
  ERL_NIF_TERM found = enif_make_tuple2(frame->env, enif_make_int(frame->env, dtype), sizes);
  return cow_result(frame->env, status, found);
}

static size_t bytes_of(const cow_dlpack_tensor* tensor) {
  size_t bytes = tensor->dtype.bits / 8;
  for (int32_t i = 0; i < tensor->rank; i++) bytes *= (size_t)tensor->shape[i];
  return bytes;
}

/* array_binary(Array): its elements, row-major. A large binary is the array's own memory, which
 * lives as long as the binary. */
ERL_NIF_TERM cow_make_array_binary(cow_frame* frame) {
  cow_mlx_array array = cow_take_handle(frame, 0, COW_KIND_ARRAY, false);
  if (frame->refused) return cow_refusal(frame);
  struct DLManagedTensorVersioned* tensor = NULL;
  cow_mlx_status status = api.array_to_dlpack(array, &tensor);
  if (status) return cow_failure(frame->env, status);
  const cow_dlpack_tensor* of = &tensor->tensor;
  const char* data = (const char*)of->data + of->offset;
  size_t bytes = bytes_of(of);
  cow_view* view = bytes > SMALL ? enif_alloc_resource(type, sizeof *view) : NULL;
  if (!view) {
    ERL_NIF_TERM copy = cow_bytes(frame->env, data, bytes);
    if (tensor->deleter) tensor->deleter(tensor);
    return cow_result(frame->env, status, copy);
  }
  view->tensor = tensor;
  ERL_NIF_TERM binary = enif_make_resource_binary(frame->env, view, data, bytes);
  enif_release_resource(view);
  return cow_result(frame->env, status, binary);
}

/* program_bind(Program, Names, Arrays): the names are JSON. Handles are known here alone. */
ERL_NIF_TERM cow_make_program_bind(cow_frame* frame) {
  cow_mlx_program program = (cow_mlx_program)cow_take_handle(frame, 0, COW_KIND_PROGRAM, false);
  cow_names names = cow_take_names(frame, 1);
  cow_handles arrays = cow_take_handles(frame, 2);
  if (!frame->refused && names.count != arrays.count) cow_refuse(frame, 2, "one for each name");
  size_t room = 32;
  for (size_t i = 0; !frame->refused && i < names.count; i++) room += strlen(names.data[i]) + 32;
  char* spec = cow_frame_memory(frame, room, 1);
  if (frame->refused) return cow_refusal(frame);
  size_t length = (size_t)snprintf(spec, room, "{\"bind\": {");
  for (size_t i = 0; i < names.count; i++) {
    length += (size_t)snprintf(spec + length, room - length, "%s%s: %" PRId64, i ? ", " : "",
                               names.data[i], arrays.data[i]);
  }
  length += (size_t)snprintf(spec + length, room - length, "}}");
  cow_mlx_program derived = 0;
  cow_mlx_status status = api.program_derive(program, spec, length, &derived);
  ERL_NIF_TERM term = status ? 0 : cow_object_term(frame->env, COW_KIND_PROGRAM, derived);
  return cow_result(frame->env, status, term);
}
