/* The calls of arrays that move data: on the caller's thread, so that no context waits for them. */
#include "calls/array_calls.h"

#include <string.h>

#include "base/hold.h"
#include "boot/bootstrap.h"
#include "boot/runtime.h"

/* ------------------------------------------------------------------ Copies */

/* Let go of the interpreter for a long copy; end_copy() takes it back, during which a thread that
 * pthread_cancel() ends would end. */
static void* begin_copy(size_t bytes, int* held) {
  *held = cow_hold_thread();
  return bytes >= COW_LONG_COPY ? cow_bootstrap_release_interpreter() : NULL;
}

static void end_copy(void* interpreter, int held) {
  cow_bootstrap_restore_interpreter(interpreter);
  cow_release_thread(held);
}

/* Memory of cow_memory_new(), for which the engine frees its cached buffers if need be. */
static void* new_memory(const char* operation, size_t bytes) {
  void* memory = cow_memory_new(bytes);
  if (memory || bytes > cow_memory_limit()) return memory;
  cow_request r = {.op = COW_OP_MEMORY_TRIM};
  return cow_runtime_call(&r, operation) == COW_MLX_OK ? cow_memory_new(bytes) : NULL;
}

void* cow_arrays_gathered(const char* operation, const cow_tensor* from) {
  void* data = new_memory(operation, from->type.bytes);
  if (!data) return NULL;
  int held;
  void* interpreter = begin_copy(from->type.bytes, &held);
  cow_tensor_gather(from, data);
  end_copy(interpreter, held);
  return data;
}

void cow_arrays_scatter(const cow_array_state* from, const cow_tensor* to) {
  int held;
  void* interpreter = begin_copy(to->type.bytes, &held);
  cow_tensor_scatter(from->data, to);
  end_copy(interpreter, held);
}

cow_mlx_status cow_arrays_no_memory(const char* operation, size_t bytes) {
  return cow_error(COW_MLX_ENOMEM, operation, COW_REASON_no_memory,
                   DETAILS(SIZE_DETAIL("needed", bytes), SIZE_DETAIL("limit", cow_memory_limit())),
                   "the array needs %zu bytes of memory, and there are fewer; %zu of at most %zu, "
                   "runtime_params.memory_limit, are in use",
                   bytes, cow_memory_in_use(), cow_memory_limit());
}

cow_mlx_status cow_arrays_copy_in(const char* operation, const cow_tensor* from,
                                  cow_mlx_array* out) {
  TRY(cow_arrays_check(operation, from->type.dtype));
  void* data = cow_arrays_gathered(operation, from);
  if (!data) return cow_arrays_no_memory(operation, from->type.bytes);
  cow_mlx_status status = cow_arrays_add_memory(operation, &from->type, data, out);
  if (status != COW_MLX_OK) cow_memory_let_go(data);
  return status;
}

cow_mlx_status cow_arrays_look(const char* operation, cow_mlx_array handle, cow_array* array,
                               cow_array_state* out) {
  *out = cow_array_look(array);
  if (out->data) return COW_MLX_OK;
  cow_array_wait_args args = {.array = handle, .timeout_ms = UINT32_MAX};
  cow_request r = {.op = COW_OP_ARRAY_WAIT, .args = &args};
  TRY(cow_runtime_call(&r, operation));
  *out = cow_array_look(array);
  if (out->data) return COW_MLX_OK;
  return cow_error(COW_MLX_EINTERNAL, operation, COW_REASON_internal, NULL,
                   "the array was computed and is nowhere");
}

/* ------------------------------------------------------------------- Calls */

cow_mlx_status cow_mlx_array_create(const cow_mlx_tensor* from, cow_mlx_array* out) {
  BEGIN_CALL;
  REQUIRE(from);
  REQUIRE(out);
  cow_tensor tensor;
  TRY(cow_tensor_check(OPERATION, "from", from, &tensor));
  return cow_arrays_copy_in(OPERATION, &tensor, out);
}

static cow_mlx_status check_same(const char* operation, const cow_array_type* type,
                                 const cow_array_type* to) {
  if (type->dtype != to->dtype) {
    char has[COW_DTYPE_TEXT], given[COW_DTYPE_TEXT];
    cow_dtype_text(type->dtype, has);
    cow_dtype_text(to->dtype, given);
    return cow_error(COW_MLX_EINVAL, operation, COW_REASON_dtype_mismatch,
                     DETAILS(TEXT_DETAIL("argument", "to"), TEXT_DETAIL("value", given),
                             TEXT_DETAIL("accepted", has)),
                     "to is of %s, but the array is of %s", given, has);
  }
  if (type->rank == to->rank &&
      !memcmp(type->shape, to->shape, (size_t)type->rank * sizeof *type->shape)) {
    return COW_MLX_OK;
  }
  char has[COW_SHAPE_TEXT], given[COW_SHAPE_TEXT];
  cow_shape_text(type->shape, type->rank, has);
  cow_shape_text(to->shape, to->rank, given);
  return cow_error(COW_MLX_EINVAL, operation, COW_REASON_shape_mismatch,
                   DETAILS(TEXT_DETAIL("argument", "to"), TEXT_DETAIL("value", given),
                           TEXT_DETAIL("accepted", has)),
                   "to has the shape %s, but the array has %s", given, has);
}

static cow_mlx_status copy_out(const char* operation, cow_mlx_array handle, cow_array* array,
                               const cow_tensor* to) {
  cow_array_state state;
  TRY(check_same(operation, cow_array_look(array).type, &to->type));
  TRY(cow_arrays_look(operation, handle, array, &state));
  cow_arrays_scatter(&state, to);
  return COW_MLX_OK;
}

cow_mlx_status cow_mlx_array_read(cow_mlx_array array, const cow_mlx_tensor* to) {
  BEGIN_CALL;
  REQUIRE(to);
  cow_tensor tensor;
  TRY(cow_tensor_check(OPERATION, "to", to, &tensor));
  TRY(cow_tensor_check_apart(OPERATION, "to", &tensor));
  cow_array* held;
  TRY(cow_arrays_hold(OPERATION, array, &held));
  cow_mlx_status status = copy_out(OPERATION, array, held, &tensor);
  cow_arrays_let_go(held);
  return status;
}

cow_mlx_status cow_mlx_array_type(cow_mlx_array array, int32_t* dtype, int64_t* shape,
                                  size_t capacity, size_t* rank) {
  BEGIN_CALL;
  REQUIRE(dtype);
  REQUIRE_BUFFER(shape, capacity);
  REQUIRE(rank);
  cow_array* held;
  TRY(cow_arrays_hold(OPERATION, array, &held));
  cow_array_type type = *cow_array_look(held).type;
  cow_arrays_let_go(held);
  size_t needed = (size_t)type.rank;
  *rank = needed;
  if (shape && capacity < needed) {
    return cow_error(COW_MLX_EBUFFER, OPERATION, COW_REASON_buffer_too_small,
                     DETAILS(SIZE_DETAIL("needed", needed), SIZE_DETAIL("capacity", capacity)),
                     "capacity is %zu, but the array has %zu dimensions", capacity, needed);
  }
  *dtype = type.dtype;
  if (shape) memcpy(shape, type.shape, needed * sizeof *shape);
  return COW_MLX_OK;
}

static void describe(const cow_array_state* state, cow_mlx_tensor* layout) {
  cow_mlx_tensor described = {.data = (void*)(uintptr_t)state->data,
                              .bytes = state->type->bytes,
                              .dtype = state->type->dtype,
                              .rank = state->type->rank,
                              .shape = state->type->shape,
                              .strides = state->type->strides};
  cow_params_write(layout, &described, sizeof described);
}

cow_mlx_status cow_mlx_array_view(cow_mlx_array array, const void** data, cow_mlx_tensor* layout) {
  BEGIN_CALL;
  REQUIRE(data);
  if (layout) TRY(cow_params_check_size(OPERATION, "layout", "tensor", layout));
  cow_array* held;
  TRY(cow_arrays_hold(OPERATION, array, &held));
  cow_array_pin(held);
  cow_array_state state;
  cow_mlx_status status = cow_arrays_look(OPERATION, array, held, &state);
  if (status == COW_MLX_OK) {
    *data = state.data;
    if (layout) describe(&state, layout);
  }
  cow_arrays_let_go(held);
  return status;
}

cow_mlx_status cow_mlx_array_free(cow_mlx_array array) {
  BEGIN_CALL;
  return cow_arrays_close(array) ? COW_MLX_OK : cow_error_handle(OPERATION, "array", array);
}
