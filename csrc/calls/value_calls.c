/* The calls that take values: a program's run and a training's step. Their values are gathered
 * before and scattered after on the caller's thread, so that no context waits for them. */
#include <stdlib.h>
#include <string.h>

#include "boot/bootstrap.h"
#include "boot/runtime.h"
#include "calls/array_calls.h"

/* The limit of a program's inputs, parameters and constants, and of its nodes. */
enum { MAX_VALUES = 1 << 16 };

/* The host's thread copies inputs of so many bytes and more. Shorter ones are read where they are,
 * or copied by the dispatch thread, which delays other calls by a tenth of a millisecond. */
enum { LONG_INPUT = 1 << 20 };

enum { NAME_SIZE = 40 };

#define REQUIRE_VALUES(values, count)                                             \
  if (!(values) && (count) > 0)                                                   \
    INVALID_NULL(#values, "%s is NULL, but %s is %zu", #values, #count, (count)); \
  if ((count) > MAX_VALUES) INVALID_SIZE(#count, count, "at most 65536")

static char* append(char* end, const char* text) {
  const size_t length = strlen(text);
  memcpy(end, text, length + 1);
  return end + length;
}

/* "inputs[3].host". A run names each value; snprintf() would take as long as all checks of one. */
static const char* name_of(const char* list, size_t index, const char* member,
                           char text[NAME_SIZE]) {
  char digits[NAME_SIZE];
  size_t first = NAME_SIZE - 1;
  digits[first] = 0;
  do digits[--first] = (char)('0' + index % 10);
  while (index /= 10);
  append(append(append(append(append(text, list), "["), digits + first), "]"), member);
  return text;
}

static cow_mlx_status refuse(const char* operation, const char* list, size_t index,
                             const char* accepted) {
  char name[NAME_SIZE];
  return cow_error(COW_MLX_EINVAL, operation, COW_REASON_conflict,
                   DETAILS(TEXT_DETAIL("argument", name_of(list, index, "", name)),
                           TEXT_DETAIL("accepted", accepted)),
                   "%s must have %s", name, accepted);
}

static cow_mlx_status no_memory(const char* operation, size_t count) {
  return cow_error(COW_MLX_ENOMEM, operation, COW_REASON_no_memory, NULL,
                   "there is too little memory for %zu values", count);
}

/* Zeros. One more than needed, so that a count of 0 is no special case. calloc() of older
 * glibc does not reuse what a thread has just freed. */
static void* room_for(size_t count, size_t size) {
  void* room = malloc((count + 1) * size);
  return room ? memset(room, 0, (count + 1) * size) : NULL;
}

/* ------------------------------------------------------------------ Inputs */

/* Whether elements lie as the engine reads them. A host's BOOL may hold bytes other than 0 and 1.
 */
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
  void* data = cow_arrays_gathered(operation, tensor);
  if (data) *out = cow_arrays_new(&tensor->type, data, data);
  if (*out) return COW_MLX_OK;
  cow_memory_let_go(data);
  return cow_arrays_no_memory(operation, bytes);
}

/* Hold the array of an input, or an array of its host memory, which the host leaves as it is until
 * the call ends. */
static cow_mlx_status hold_input(const char* operation, const cow_mlx_value* value, size_t index,
                                 cow_array** out) {
  if ((value->array != 0) == (value->host != NULL)) {
    return refuse(operation, "inputs", index, "either an array or host memory");
  }
  if (value->array) return cow_arrays_hold(operation, value->array, out);
  char name[NAME_SIZE];
  cow_tensor tensor;
  TRY(cow_tensor_check(operation, name_of("inputs", index, ".host", name), value->host, &tensor));
  TRY(cow_arrays_check(operation, tensor.type.dtype));
  if (tensor.first && tensor.type.bytes < LONG_INPUT && is_row_major(&tensor)) {
    *out = cow_arrays_new(&tensor.type, NULL, tensor.first);
    if (*out) return COW_MLX_OK;
  }
  return gather(operation, &tensor, out);
}

static cow_mlx_status hold_inputs(const char* operation, cow_values inputs) {
  for (size_t i = 0; i < inputs.count; i++) {
    TRY(hold_input(operation, &inputs.given[i], i, &inputs.arrays[i]));
  }
  return COW_MLX_OK;
}

/* The engine has taken over all arrays, or none. */
static void free_inputs(cow_values inputs) {
  for (size_t i = 0; inputs.arrays && i < inputs.count; i++) {
    if (inputs.arrays[i]) cow_arrays_let_go(inputs.arrays[i]);
  }
  free(inputs.arrays);
}

/* ---------------------------------------------------------- Runs of programs */

/* The state of a run. */
typedef struct run {
  const char* operation;
  cow_values inputs;
  cow_mlx_value* outputs;
  cow_results results;
  cow_tensor* tensors;    /* of outputs in host memory */
  cow_mlx_array* handles; /* of other outputs */
} run;

static cow_mlx_status check_output(const run* it, size_t index, bool submit) {
  const cow_mlx_value* value = &it->outputs[index];
  if (value->array) {
    return refuse(it->operation, "outputs", index, "0 as its array, which receives a handle");
  }
  if (!value->host) return COW_MLX_OK;
  if (submit) {
    return refuse(it->operation, "outputs", index,
                  "no host memory, which is not filled by a submit");
  }
  char name[NAME_SIZE];
  cow_tensor* tensor = &it->tensors[index];
  TRY(cow_tensor_check(it->operation, name_of("outputs", index, ".host", name), value->host,
                       tensor));
  TRY(cow_tensor_check_apart(it->operation, name, tensor));
  it->results.data[index] = (cow_result){.is_host = true,
                                         .dtype = tensor->type.dtype,
                                         .rank = tensor->type.rank,
                                         .shape = tensor->type.shape};
  return COW_MLX_OK;
}

/* Open handles for outputs outside of host memory; all or none. */
static cow_mlx_status open_results(const run* it) {
  for (size_t i = 0; i < it->results.count; i++) {
    if (it->results.data[i].is_host) continue;
    cow_mlx_status status =
        cow_arrays_open(it->operation, it->results.data[i].array, &it->handles[i]);
    if (status == COW_MLX_OK) continue;
    while (i--) {
      if (it->handles[i]) cow_arrays_close(it->handles[i]);
    }
    return status;
  }
  return COW_MLX_OK;
}

static void write_outputs(const run* it) {
  for (size_t i = 0; i < it->results.count; i++) {
    if (it->results.data[i].is_host) {
      cow_array_state state = cow_array_look(it->results.data[i].array);
      cow_arrays_scatter(&state, &it->tensors[i]);
    } else {
      it->outputs[i].array = it->handles[i];
    }
  }
}

static cow_mlx_status carry_out(const run* it, cow_mlx_program program,
                                const cow_mlx_run_params* params) {
  TRY(hold_inputs(it->operation, it->inputs));
  for (size_t i = 0; i < it->results.count; i++) TRY(check_output(it, i, params->submit));
  cow_program_run_args args = {
      .program = program, .inputs = it->inputs, .outputs = it->results, .params = params};
  cow_request r = {.op = COW_OP_PROGRAM_RUN, .args = &args, .program = program};
  TRY(cow_runtime_call(&r, it->operation));
  TRY(open_results(it));
  write_outputs(it);
  return COW_MLX_OK;
}

static void free_run(const run* it) {
  free_inputs(it->inputs);
  for (size_t i = 0; it->results.data && i < it->results.count; i++) {
    if (it->results.data[i].array) cow_arrays_let_go(it->results.data[i].array);
  }
  free(it->results.data);
  free(it->tensors);
  free(it->handles);
}

cow_mlx_status cow_mlx_program_run(cow_mlx_program program, const cow_mlx_value* inputs,
                                   size_t count, cow_mlx_value* outputs, size_t output_count,
                                   const cow_mlx_run_params* params) {
  BEGIN_CALL;
  REQUIRE_VALUES(inputs, count);
  REQUIRE_VALUES(outputs, output_count);
  cow_mlx_run_params effective;
  TRY(COW_READ_PARAMS(run, OPERATION, params, &effective));
  run it = {.operation = OPERATION,
            .inputs = {inputs, room_for(count, sizeof(cow_array*)), count},
            .outputs = outputs,
            .results = {room_for(output_count, sizeof(cow_result)), output_count},
            .tensors = room_for(output_count, sizeof(cow_tensor)),
            .handles = room_for(output_count, sizeof(cow_mlx_array))};
  bool has_memory = it.inputs.arrays && it.results.data && it.tensors && it.handles;
  cow_mlx_status status =
      has_memory ? carry_out(&it, program, &effective) : no_memory(OPERATION, count + output_count);
  free_run(&it);
  return status;
}

/* -------------------------------------------------------- Steps of trainings */

static cow_mlx_status take_step(const char* operation, cow_mlx_training training, cow_values inputs,
                                cow_mlx_training_event* event) {
  TRY(hold_inputs(operation, inputs));
  cow_mlx_training_event result = {.struct_size = sizeof result};
  cow_training_step_args args = {.training = training, .inputs = inputs, .event = &result};
  cow_request r = {.op = COW_OP_TRAINING_STEP, .args = &args, .training = training};
  cow_mlx_status status = cow_runtime_call(&r, operation);
  if (event && status >= COW_MLX_OK) cow_params_write(event, &result, sizeof result);
  return status;
}

cow_mlx_status cow_mlx_training_step(cow_mlx_training training, const cow_mlx_value* inputs,
                                     size_t count, cow_mlx_training_event* event) {
  BEGIN_CALL;
  REQUIRE_VALUES(inputs, count);
  if (event) {
    TRY(cow_params_check_size(OPERATION, "event", "training_event", event));
  }
  cow_values values = {inputs, room_for(count, sizeof(cow_array*)), count};
  cow_mlx_status status =
      values.arrays ? take_step(OPERATION, training, values, event) : no_memory(OPERATION, count);
  free_inputs(values);
  return status;
}
