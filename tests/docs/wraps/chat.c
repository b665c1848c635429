#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>

static void check(cow_mlx_status status) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

static bool show(const cow_mlx_event* event, void* user_data) {
  (void)user_data;
  if (event->kind == COW_MLX_EVENT_TEXT) fwrite(event->text, 1, event->length, stdout);
  if (event->kind == COW_MLX_EVENT_TOOL_CALL) printf("[%s %s]", event->name, event->text);
  if (event->kind == COW_MLX_EVENT_END) printf("\n");
  return true;
}

int main(void) {
  cow_mlx_model model;
  cow_mlx_context context;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_model_load("models/calf", NULL, &model));
  check(cow_mlx_context_create(model, NULL, &context));
  {
    /* BLOCK */
  }
  check(cow_mlx_runtime_stop());
}
