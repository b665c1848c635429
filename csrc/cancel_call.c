#include "cancel.h"
#include "checks.h"
#include "queue.h"

cow_mlx_status cow_mlx_context_cancel(cow_mlx_context context) {
  BEGIN_CALL;
  if (!cow_cancel_request(context)) {
    return cow_error(COW_MLX_EHANDLE, "%s: %d is not an open context", OPERATION, (int)context);
  }
  cow_queue_wake();
  return COW_MLX_OK;
}
