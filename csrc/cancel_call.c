/* The one call that may be made in a signal handler, so it takes no lock and does not wait. */
#include "cancel.h"
#include "queue.h"
#include "runtime.h"

/* There even the thread's message is out of reach: its first use may allocate. */
cow_mlx_status cow_mlx_context_cancel(cow_mlx_context context) {
  cow_mlx_status status = cow_runtime_status();
  if (status != COW_MLX_OK) return status;
  if (!cow_cancel_request(context)) return COW_MLX_EHANDLE;
  cow_queue_wake();
  return COW_MLX_OK;
}
