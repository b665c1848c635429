/* The run of a program: values are gathered before and scattered after on the caller's thread, so
 * that no context waits for them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array_calls.h"
#include "bootstrap.h"
#include "checks.h"
#include "deliver.h"

/* A program has no more inputs, parameters and constants, and no more nodes. */
enum { MAX_VALUES = 1 << 16 };

enum { VALUE_TEXT = 40 };

/* What a run has while it lasts. */
typedef struct run {
  const char* operation;
  const cow_mlx_value* inputs;
  size_t count;
  cow_array** arrays; /* of inputs */
  cow_mlx_value* outputs;
  size_t output_count;
  cow_result* results;
  cow_tensor* tensors; /* of outputs of the host's */
} run;

static const char* name_of(const char* list, size_t index, const char* member,
                           char text[VALUE_TEXT]) {
  snprintf(text, VALUE_TEXT, "%s[%zu]%s", list, index, member);
  return text;
}

static cow_mlx_status refuse(const run* it, const char* list, size_t index, const char* accepted) {
  char name[VALUE_TEXT];
  return cow_error(COW_MLX_EINVAL, it->operation, COW_REASON_conflict,
                   DETAILS(TEXT_DETAIL("argument", name_of(list, index, "", name)),
                           TEXT_DETAIL("accepted", accepted)),
                   "%s must have %s", name, accepted);
}

/* ------------------------------------------------------------------ Inputs */

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

static cow_mlx_status gather(const run* it, const cow_tensor* tensor, cow_array** out) {
  size_t bytes = tensor->type.bytes;
  void* data = cow_arrays_memory(it->operation, bytes);
  if (data) {
    void* interpreter = cow_arrays_before_copy(bytes);
    cow_tensor_gather(tensor, data);
    cow_bootstrap_restore_interpreter(interpreter);
    *out = cow_arrays_new(&tensor->type, data, data);
    if (!*out) cow_memory_let_go(data);
  }
  if (*out) return COW_MLX_OK;
  return cow_arrays_no_memory(it->operation, bytes);
}

static cow_mlx_status take_input(const run* it, size_t index) {
  const cow_mlx_value* value = &it->inputs[index];
  if ((value->array != 0) == (value->host != NULL)) {
    return refuse(it, "inputs", index, "either an array or host memory");
  }
  if (value->array) return cow_arrays_hold(it->operation, value->array, &it->arrays[index]);
  char name[VALUE_TEXT];
  cow_tensor tensor;
  TRY(cow_tensor_check(it->operation, name_of("inputs", index, ".host", name), value->host,
                       &tensor));
  TRY(cow_arrays_check(it->operation, tensor.type.dtype));
  /* The engine copies a few bytes while the caller waits; more would keep others waiting, too. */
  if (tensor.first && tensor.type.bytes < COW_LONG_COPY && is_row_major(&tensor)) {
    it->arrays[index] = cow_arrays_new(&tensor.type, NULL, tensor.first);
    if (it->arrays[index]) return COW_MLX_OK;
  }
  return gather(it, &tensor, &it->arrays[index]);
}

/* ----------------------------------------------------------------- Outputs */

static cow_mlx_status check_output(const run* it, size_t index, bool submit) {
  const cow_mlx_value* value = &it->outputs[index];
  if (value->array) return refuse(it, "outputs", index, "0 as its array, which receives a handle");
  if (!value->host) return COW_MLX_OK;
  if (submit)
    return refuse(it, "outputs", index, "no host memory, which is not filled by a submit");
  char name[VALUE_TEXT];
  cow_tensor* tensor = &it->tensors[index];
  TRY(cow_tensor_check(it->operation, name_of("outputs", index, ".host", name), value->host,
                       tensor));
  TRY(cow_tensor_check_apart(it->operation, name, tensor));
  it->results[index] = (cow_result){.is_host = true,
                                    .dtype = tensor->type.dtype,
                                    .rank = tensor->type.rank,
                                    .shape = tensor->type.shape};
  return COW_MLX_OK;
}

/* Open handles for what is not the host's; all or none. */
static cow_mlx_status open_results(const run* it, cow_mlx_array* handles) {
  for (size_t i = 0; i < it->output_count; i++) {
    if (it->results[i].is_host) continue;
    cow_mlx_status status = cow_arrays_open(it->operation, it->results[i].array, &handles[i]);
    if (status == COW_MLX_OK) continue;
    while (i--) {
      if (handles[i]) cow_arrays_close(handles[i]);
    }
    return status;
  }
  return COW_MLX_OK;
}

static void scatter(const run* it) {
  for (size_t i = 0; i < it->output_count; i++) {
    if (!it->results[i].is_host) continue;
    void* interpreter = cow_arrays_before_copy(it->tensors[i].type.bytes);
    cow_tensor_scatter(cow_array_look(it->results[i].array).data, &it->tensors[i]);
    cow_bootstrap_restore_interpreter(interpreter);
  }
}

/* Write the outputs of a run that went well. */
static cow_mlx_status deliver_results(const run* it, cow_mlx_array* handles) {
  cow_mlx_status status = open_results(it, handles);
  if (status != COW_MLX_OK) return status;
  scatter(it);
  for (size_t i = 0; i < it->output_count; i++) {
    if (handles[i]) it->outputs[i].array = handles[i];
  }
  return COW_MLX_OK;
}

/* --------------------------------------------------------------------- Runs */

static cow_mlx_status prepare(const run* it, bool submit) {
  for (size_t i = 0; i < it->count; i++) TRY(take_input(it, i));
  for (size_t i = 0; i < it->output_count; i++) TRY(check_output(it, i, submit));
  return COW_MLX_OK;
}

static cow_mlx_status carry_out(const run* it, cow_mlx_program program,
                                const cow_mlx_run_params* params, cow_mlx_array* handles) {
  cow_mlx_status status = prepare(it, params->submit);
  if (status != COW_MLX_OK) return status;
  cow_program_run_args args = {
      .program = program,
      .inputs = {it->inputs, it->arrays, it->count},
      .outputs = {it->results, it->output_count},
      .params = params,
  };
  cow_request r = {
      .op = COW_OP_PROGRAM_RUN, .deliver = cow_deliver, .args = &args, .program = program};
  status = cow_runtime_call(&r, it->operation);
  return status == COW_MLX_OK ? deliver_results(it, handles) : status;
}

static void let_go(const run* it) {
  for (size_t i = 0; i < it->count; i++) {
    if (it->arrays[i]) cow_arrays_let_go(it->arrays[i]);
  }
  for (size_t i = 0; i < it->output_count; i++) {
    if (it->results[i].array) cow_arrays_let_go(it->results[i].array);
  }
}

/* One more than needed, so that no count asks for nothing. */
static void* room_for(size_t count, size_t size) { return calloc(count + 1, size); }

#define REQUIRE_VALUES(values, count)                                             \
  if (!(values) && (count) > 0)                                                   \
    INVALID_NULL(#values, "%s is NULL, but %s is %zu", #values, #count, (count)); \
  if ((count) > MAX_VALUES) INVALID_SIZE(#count, count, "at most 65536")

cow_mlx_status cow_mlx_program_run(cow_mlx_program program, const cow_mlx_value* inputs,
                                   size_t count, cow_mlx_value* outputs, size_t output_count,
                                   const cow_mlx_run_params* params) {
  BEGIN_CALL;
  REQUIRE_VALUES(inputs, count);
  REQUIRE_VALUES(outputs, output_count);
  cow_mlx_run_params effective;
  TRY(COW_READ_PARAMS(run, OPERATION, params, &effective));
  run it = {.operation = OPERATION,
            .inputs = inputs,
            .count = count,
            .arrays = room_for(count, sizeof *it.arrays),
            .outputs = outputs,
            .output_count = output_count,
            .results = room_for(output_count, sizeof *it.results),
            .tensors = room_for(output_count, sizeof *it.tensors)};
  cow_mlx_array* handles = room_for(output_count, sizeof *handles);
  cow_mlx_status status;
  if (it.arrays && it.results && it.tensors && handles) {
    status = carry_out(&it, program, &effective, handles);
    let_go(&it);
  } else {
    status = cow_error(COW_MLX_ENOMEM, OPERATION, COW_REASON_no_memory, NULL,
                       "there is too little memory for %zu values", count + output_count);
  }
  free(handles);
  free(it.tensors);
  free(it.results);
  free(it.arrays);
  return status;
}
