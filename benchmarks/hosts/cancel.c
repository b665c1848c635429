/*
 * How long a prompt continues after it was cancelled: cancel MODEL
 *
 * Prints "ready", then answers lines "cancel MILLISECONDS TOKEN...": so long after a begin of the
 * tokens it is cancelled from another thread. The answer is the seconds from the cancel until the
 * begin has returned, those until the context was free for another call, and the tokens that it
 * holds; no seconds if the prompt had ended before.
 */
#include "host.h"

typedef struct beginning {
  cow_mlx_context context;
  const task* asked;
  cow_mlx_status status;
  double returned;
} beginning;

static void* begin(void* data) {
  beginning* self = data;
  self->status =
      cow_mlx_context_begin(self->context, self->asked->prompt, self->asked->count, NULL);
  self->returned = now();
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  static task asked;
  cow_mlx_model model = start(argv[1]);
  ready();
  while (read_task(&asked)) {
    beginning prompt = {.context = open_context(model, false), .asked = &asked};
    pthread_t thread;
    if (pthread_create(&thread, NULL, begin, &prompt)) return 1;
    struct timespec pause = {(time_t)(asked.max_tokens / 1000),
                             (long)(asked.max_tokens % 1000) * 1000000};
    nanosleep(&pause, NULL);
    double canceled = now();
    check(cow_mlx_context_cancel(prompt.context));
    pthread_join(thread, NULL);
    size_t held;
    cow_mlx_status status = cow_mlx_context_tokens(prompt.context, NULL, 0, &held);
    if (status != COW_MLX_EBUFFER) check(status);
    double idle = now();
    if (prompt.status == COW_MLX_ECANCELED)
      printf("%.6f %.6f %zu\n", prompt.returned - canceled, idle - canceled, held);
    else
      check(prompt.status), printf("nan nan %zu\n", held);
    fflush(stdout);
    check(cow_mlx_context_free(prompt.context));
  }
  return 0;
}
