#include "calls/values.h"

#include <stdio.h>

#include "boot/bootstrap.h"
#include "base/checks.h"

const char* cow_values_name(const char* list, size_t index, const char* member,
                            char text[COW_VALUE_TEXT]) {
  snprintf(text, COW_VALUE_TEXT, "%s[%zu]%s", list, index, member);
  return text;
}

cow_mlx_status cow_values_refuse(const char* operation, const char* list, size_t index,
                                 const char* accepted) {
  char name[COW_VALUE_TEXT];
  return cow_error(COW_MLX_EINVAL, operation, COW_REASON_conflict,
                   DETAILS(TEXT_DETAIL("argument", cow_values_name(list, index, "", name)),
                           TEXT_DETAIL("accepted", accepted)),
                   "%s must have %s", name, accepted);
}

/* Whether elements lie as the engine reads them; of a BOOL they may hold other bytes. */
static bool is_row_major(const cow_tensor* tensor) {
  size_t bytes = cow_dtype_bytes(tensor->type.dtype);
  if (tensor->type.dtype == COW_MLX_BOOL || (uintptr_t)tensor->first % bytes) return false;
  for (int32_t d = 0; d < tensor->type.rank; d++) {
    if (tensor->type.shape[d] > 1 &&
        tensor->strides[d] != tensor->type.strides[d] * (int64_t)bytes) {
      return false;
    }
  }
  return true;
}

static cow_mlx_status gather(const char* operation, const cow_tensor* tensor, cow_array** out) {
  size_t bytes = tensor->type.bytes;
  void* data = cow_arrays_memory(operation, bytes);
  if (data) {
    void* interpreter = cow_arrays_before_copy(bytes);
    cow_tensor_gather(tensor, data);
    cow_bootstrap_restore_interpreter(interpreter);
    *out = cow_arrays_new(&tensor->type, data, data);
    if (!*out) cow_memory_let_go(data);
  }
  if (*out) return COW_MLX_OK;
  return cow_arrays_no_memory(operation, bytes);
}

cow_mlx_status cow_values_take(const char* operation, const cow_mlx_value* inputs, size_t index,
                               cow_array** out) {
  const cow_mlx_value* value = &inputs[index];
  if ((value->array != 0) == (value->host != NULL)) {
    return cow_values_refuse(operation, "inputs", index, "either an array or host memory");
  }
  if (value->array) return cow_arrays_hold(operation, value->array, out);
  char name[COW_VALUE_TEXT];
  cow_tensor tensor;
  TRY(cow_tensor_check(operation, cow_values_name("inputs", index, ".host", name), value->host,
                       &tensor));
  TRY(cow_arrays_check(operation, tensor.type.dtype));
  /* The engine copies a few bytes while the caller waits; more would keep others waiting, too. */
  if (tensor.first && tensor.type.bytes < COW_LONG_COPY && is_row_major(&tensor)) {
    *out = cow_arrays_new(&tensor.type, NULL, tensor.first);
    if (*out) return COW_MLX_OK;
  }
  return gather(operation, &tensor, out);
}
