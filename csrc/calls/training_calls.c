/* A step of a training: its batch is gathered on the caller's thread, so that no context waits. */
#include <stdlib.h>

#include "base/checks.h"
#include "queue/deliver.h"
#include "calls/values.h"

static cow_mlx_status carry_out(const char* operation, cow_mlx_training training,
                                const cow_mlx_value* inputs, size_t count, cow_array** arrays,
                                cow_mlx_training_event* event) {
  for (size_t i = 0; i < count; i++) TRY(cow_values_take(operation, inputs, i, &arrays[i]));
  cow_mlx_training_event result = {.struct_size = sizeof result};
  cow_training_step_args args = {
      .training = training, .inputs = {inputs, arrays, count}, .event = &result};
  cow_request r = {
      .op = COW_OP_TRAINING_STEP, .deliver = cow_deliver, .args = &args, .training = training};
  cow_mlx_status status = cow_runtime_call(&r, operation);
  if (event && status >= COW_MLX_OK) cow_params_write(event, &result, sizeof result);
  return status;
}

cow_mlx_status cow_mlx_training_step(cow_mlx_training training, const cow_mlx_value* inputs,
                                     size_t count, cow_mlx_training_event* event) {
  BEGIN_CALL;
  REQUIRE_VALUES(inputs, count);
  if (event) TRY(cow_params_check_out(OPERATION, "training_event", event));
  cow_array** arrays = calloc(count + 1, sizeof *arrays);
  if (!arrays) {
    return cow_error(COW_MLX_ENOMEM, OPERATION, COW_REASON_no_memory, NULL,
                     "there is too little memory for %zu values", count);
  }
  cow_mlx_status status = carry_out(OPERATION, training, inputs, count, arrays, event);
  for (size_t i = 0; i < count; i++) {
    if (arrays[i]) cow_arrays_let_go(arrays[i]);
  }
  free(arrays);
  return status;
}
