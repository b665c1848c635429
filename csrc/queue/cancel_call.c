/* The calls that may be made in a signal handler, so they take no lock and do not wait. */
#include "queue/cancel.h"
#include "queue/queue.h"
#include "boot/runtime.h"

/* There even the thread's message is out of reach: its first use may allocate. */
static cow_mlx_status cancel(cow_kind kind, int32_t handle) {
  cow_mlx_status status = cow_runtime_status();
  if (status != COW_MLX_OK) return status;
  if (!cow_cancel_request(kind, handle)) return COW_MLX_EHANDLE;
  cow_queue_wake();
  return COW_MLX_OK;
}

cow_mlx_status cow_mlx_context_cancel(cow_mlx_context context) {
  return cancel(COW_KIND_CONTEXT, context);
}

cow_mlx_status cow_mlx_program_cancel(cow_mlx_program program) {
  return cancel(COW_KIND_PROGRAM, program);
}

cow_mlx_status cow_mlx_training_cancel(cow_mlx_training training) {
  return cancel(COW_KIND_TRAINING, training);
}
