/* Arrays from tensors of DLPack 1.x, and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boot/runtime.h"
#include "calls/array_calls.h"
#include "calls/dlpack.h"

static const uint8_t codes[] = {
    [COW_MLX_BOOL] = COW_DLPACK_BOOL,       [COW_MLX_UINT8] = COW_DLPACK_UINT,
    [COW_MLX_UINT16] = COW_DLPACK_UINT,     [COW_MLX_UINT32] = COW_DLPACK_UINT,
    [COW_MLX_UINT64] = COW_DLPACK_UINT,     [COW_MLX_INT8] = COW_DLPACK_INT,
    [COW_MLX_INT16] = COW_DLPACK_INT,       [COW_MLX_INT32] = COW_DLPACK_INT,
    [COW_MLX_INT64] = COW_DLPACK_INT,       [COW_MLX_FLOAT16] = COW_DLPACK_FLOAT,
    [COW_MLX_BFLOAT16] = COW_DLPACK_BFLOAT, [COW_MLX_FLOAT32] = COW_DLPACK_FLOAT,
    [COW_MLX_FLOAT64] = COW_DLPACK_FLOAT,   [COW_MLX_COMPLEX64] = COW_DLPACK_COMPLEX,
};

static cow_dlpack_dtype dlpack_dtype(int32_t dtype) {
  return (cow_dlpack_dtype){codes[dtype], (uint8_t)(8 * cow_dtype_bytes(dtype)), 1};
}

static cow_mlx_status unsupported(const char* operation, const char* argument, int64_t value,
                                  const char* accepted) {
  return cow_error(COW_MLX_EUNSUPPORTED, operation, COW_REASON_unsupported,
                   DETAILS(TEXT_DETAIL("argument", argument), INT_DETAIL("value", value)),
                   "%s is %lld, must be %s", argument, (long long)value, accepted);
}

/* 0 if the library has no such dtype. */
static int32_t dtype_of(const cow_dlpack_dtype* type) {
  for (int32_t dtype = 1; dtype < (int32_t)sizeof codes; dtype++) {
    cow_dlpack_dtype known = dlpack_dtype(dtype);
    if (!memcmp(&known, type, sizeof known)) return dtype;
  }
  return 0;
}

static cow_mlx_status read_managed(const char* operation,
                                   const struct DLManagedTensorVersioned* managed,
                                   cow_tensor* out) {
  const cow_dlpack_tensor* given = &managed->tensor;
  if (managed->major != COW_DLPACK_MAJOR) { /* members after the version may lie elsewhere */
    return unsupported(operation, "managed.version.major", managed->major, "1");
  }
  if (given->device_type != COW_DLPACK_CPU) {
    return unsupported(operation, "managed.device_type", given->device_type, "1 (kDLCPU)");
  }
  int32_t dtype = dtype_of(&given->dtype);
  if (!dtype) {
    char text[48];
    snprintf(text, sizeof text, "code %u, %u bits, %u lanes", (unsigned)given->dtype.code,
             (unsigned)given->dtype.bits, (unsigned)given->dtype.lanes);
    return cow_error(COW_MLX_EUNSUPPORTED, operation, COW_REASON_unsupported,
                     DETAILS(TEXT_DETAIL("argument", "managed.dtype"), TEXT_DETAIL("value", text)),
                     "managed.dtype is %s, which no dtype of the library is", text);
  }
  cow_array_type type;
  TRY(cow_type_read(operation, "managed", dtype, given->rank, given->shape, &type));
  return cow_tensor_place(operation, "managed", &type, given->data, given->offset, given->strides,
                          out);
}

cow_mlx_status cow_mlx_array_from_dlpack(struct DLManagedTensorVersioned* managed,
                                         cow_mlx_array* out) {
  BEGIN_CALL;
  REQUIRE(managed);
  REQUIRE(out);
  cow_tensor tensor;
  TRY(read_managed(OPERATION, managed, &tensor));
  TRY(cow_arrays_copy_in(OPERATION, &tensor, out));
  if (managed->deleter) managed->deleter(managed);
  return COW_MLX_OK;
}

/* An exported tensor with its shape and memory. */
typedef struct export {
  struct DLManagedTensorVersioned managed;
  cow_array_type type;
  void* data; /* of cow_memory_new() */
} export;

/* Needs neither the runtime nor its table. */
static void delete_export(struct DLManagedTensorVersioned* managed) {
  export* made = managed->owner;
  cow_memory_let_go(made->data);
  free(made);
}

static void fill_export(export* made, const cow_array_state* state, void* data, bool is_copied) {
  made->type = *state->type;
  made->data = data;
  made->managed = (struct DLManagedTensorVersioned){
      .major = COW_DLPACK_MAJOR,
      .minor = COW_DLPACK_MINOR,
      .owner = made,
      .deleter = delete_export,
      .flags = COW_DLPACK_READ_ONLY | (is_copied ? COW_DLPACK_COPIED : 0),
      .tensor = {.data = data,
                 .device_type = COW_DLPACK_CPU,
                 .rank = made->type.rank,
                 .dtype = dlpack_dtype(made->type.dtype),
                 .shape = made->type.shape,
                 .strides = made->type.strides},
  };
}

static cow_mlx_status give_away(const char* operation, cow_mlx_array handle, cow_array* array,
                                struct DLManagedTensorVersioned** out) {
  cow_array_state state;
  TRY(cow_arrays_look(operation, handle, array, &state));
  cow_tensor elements;
  TRY(cow_tensor_place(operation, "array", state.type, (void*)(uintptr_t)state.data, 0, NULL,
                       &elements));
  export* made = calloc(1, sizeof *made);
  /* Elements in the engine's memory are copied, since that memory ends with the engine. */
  void* shared = made ? cow_array_share(array) : NULL;
  void* data = shared || !made ? shared : cow_arrays_gathered(operation, &elements);
  if (!data) {
    free(made);
    return cow_arrays_no_memory(operation, state.type->bytes);
  }
  fill_export(made, &state, data, !shared);
  *out = &made->managed;
  return COW_MLX_OK;
}

cow_mlx_status cow_mlx_array_to_dlpack(cow_mlx_array array, struct DLManagedTensorVersioned** out) {
  BEGIN_CALL;
  REQUIRE(out);
  cow_array* held;
  TRY(cow_arrays_hold(OPERATION, array, &held));
  cow_mlx_status status = give_away(OPERATION, array, held, out);
  cow_arrays_let_go(held);
  return status;
}
