/* The run of a program: values are gathered before and scattered after on the caller's thread, so
 * that no context waits for them. */
#include <stdlib.h>
#include <string.h>

#include "calls/array_calls.h"
#include "boot/bootstrap.h"
#include "base/checks.h"
#include "queue/deliver.h"
#include "calls/values.h"

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

static cow_mlx_status refuse(const run* it, const char* list, size_t index, const char* accepted) {
  return cow_values_refuse(it->operation, list, index, accepted);
}

/* ----------------------------------------------------------------- Outputs */

static cow_mlx_status check_output(const run* it, size_t index, bool submit) {
  const cow_mlx_value* value = &it->outputs[index];
  if (value->array) return refuse(it, "outputs", index, "0 as its array, which receives a handle");
  if (!value->host) return COW_MLX_OK;
  if (submit)
    return refuse(it, "outputs", index, "no host memory, which is not filled by a submit");
  char name[COW_VALUE_TEXT];
  cow_tensor* tensor = &it->tensors[index];
  TRY(cow_tensor_check(it->operation, cow_values_name("outputs", index, ".host", name), value->host,
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
  for (size_t i = 0; i < it->count; i++) {
    TRY(cow_values_take(it->operation, it->inputs, i, &it->arrays[i]));
  }
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
