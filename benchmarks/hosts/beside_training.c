/*
 * Contexts that generate while a language model is trained: beside_training MODEL LINES
 *
 * Prints "ready", then answers lines "KIND COUNT THREADS TOKEN...". THREADS contexts generate COUNT
 * tokens each behind the tokens, alone ("alone") or while the same model is trained ("beside"):
 * tokens/s of all of them, the longest gap in seconds between two tokens of any, and the
 * micro-batches of the training meanwhile in a second. "train" gives the latter without contexts.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "host.h"

enum { MAX_THREADS = 16, ROWS = 4, LENGTH = 129 };

typedef struct speaker {
  pthread_t thread;
  cow_mlx_context context;
  const task* asked;
  double gap;
  double times[MAX_TOKENS];
} speaker;

static cow_mlx_training training;
static const char* lines;
static atomic_size_t steps;
static atomic_bool stopping;

static void* speak(void* data) {
  speaker* self = data;
  cow_mlx_generation_params params = greedy(self->asked->max_tokens);
  const int32_t* prompt = self->asked->prompt + 1;
  size_t tokens = decode(self->context, prompt, self->asked->count - 1, &params, self->times);
  for (size_t i = 1; i < tokens; i++) {
    double gap = self->times[i] - self->times[i - 1];
    if (gap > self->gap) self->gap = gap;
  }
  return NULL;
}

static bool count_steps(const cow_mlx_training_event* event, void* user_data) {
  (void)user_data;
  if (event->kind == COW_MLX_TRAINING_STEP) atomic_store(&steps, event->step);
  return !atomic_load(&stopping);
}

static void* train(void* unused) {
  (void)unused;
  char options[64];
  snprintf(options, sizeof options, "{\"max_seq_length\": %d}", LENGTH);
  cow_mlx_fit_params params;
  cow_mlx_fit_params_init(&params, sizeof params);
  params.steps = SIZE_MAX >> 1;
  params.batch_size = ROWS;
  params.lines_file = lines;
  params.lines_options = options;
  cow_mlx_status status = cow_mlx_training_fit(training, &params, count_steps, NULL);
  if (status != COW_MLX_ECANCELED) check(status);
  return NULL;
}

static void pause_until(double end) {
  while (now() < end) {
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
}

static void answer(cow_mlx_model model, const task* asked) {
  static speaker speakers[MAX_THREADS];
  pthread_t trainer;
  size_t threads = (size_t)asked->prompt[0];
  bool trains = strcmp(asked->kind, "alone") != 0;
  bool speaks = strcmp(asked->kind, "train") != 0;
  atomic_store(&stopping, false);
  if (trains) {
    size_t before = atomic_load(&steps);
    if (pthread_create(&trainer, NULL, train, NULL)) exit(1);
    while (atomic_load(&steps) < before + 2) pause_until(now() + 1e-3);
  }
  size_t first = atomic_load(&steps);
  double begun = now(), gap = 0;
  for (size_t i = 0; speaks && i < threads; i++) {
    speakers[i].context = open_context(model, false);
    speakers[i].asked = asked;
    speakers[i].gap = 0;
    if (pthread_create(&speakers[i].thread, NULL, speak, &speakers[i])) exit(1);
  }
  for (size_t i = 0; speaks && i < threads; i++) {
    pthread_join(speakers[i].thread, NULL);
    if (speakers[i].gap > gap) gap = speakers[i].gap;
  }
  if (!speaks) pause_until(begun + (double)asked->max_tokens);
  double taken = now() - begun;
  size_t made = atomic_load(&steps) - first;
  atomic_store(&stopping, true);
  if (trains) {
    check(cow_mlx_training_cancel(training));
    pthread_join(trainer, NULL);
  }
  for (size_t i = 0; speaks && i < threads; i++) check(cow_mlx_context_free(speakers[i].context));
  double tokens = speaks ? (double)(threads * asked->max_tokens) : 0;
  printf("%.6f %.6f %.6f\n", tokens / taken, gap, (double)made / taken);
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  static task asked;
  cow_mlx_model model = start(argv[1]);
  lines = argv[2];
  check(cow_mlx_training_create_for_model(model, NULL, &training));
  ready();
  while (read_task(&asked)) {
    if (asked.count < 2 || asked.prompt[0] < 1 || asked.prompt[0] > MAX_THREADS) return 2;
    answer(model, &asked);
  }
  return 0;
}
