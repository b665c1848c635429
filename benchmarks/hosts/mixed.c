/*
 * Contexts beside others: mixed MODEL [OTHER]
 *
 * Prints "ready", then answers lines "KIND COUNT THREADS TOKEN...". While THREADS contexts decode
 * COUNT tokens each, "newcomer" gives the seconds to the first token of another context that
 * begins with 32 of the tokens, and "prefill" the longest gap in seconds between two tokens of
 * any of them while another context processes all of the tokens. "both" and "turns" give the
 * seconds that a context on each of the two models takes, at once or one after the other.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "host.h"

enum { MAX_THREADS = 64 };

typedef struct worker {
  pthread_t thread;
  cow_mlx_context context;
  const int32_t* prompt;
  size_t count;
  size_t max_tokens;
  size_t tokens;
  double first;
  double last;
  double gap;
} worker;

static atomic_bool measuring;
static atomic_size_t decoding;

static void generate(worker* self) {
  char text[256];
  size_t length;
  cow_mlx_status status;
  cow_mlx_generation_params params = greedy(self->max_tokens);
  self->tokens = 0;
  self->gap = 0;
  check(cow_mlx_context_begin(self->context, self->prompt, self->count, &params));
  while ((status = cow_mlx_context_next(self->context, text, sizeof text, &length, NULL)) ==
         COW_MLX_OK) {
    double at = now();
    if (self->tokens++ == 0) {
      self->first = at;
      atomic_fetch_add(&decoding, 1);
    } else if (atomic_load(&measuring) && at - self->last > self->gap) {
      self->gap = at - self->last;
    }
    self->last = at;
  }
  if (status != COW_MLX_DONE) check(status);
}

static void* run(void* data) {
  generate(data);
  return NULL;
}

static double beside_others(cow_mlx_model model, const task* asked, const int32_t* tokens,
                            size_t count) {
  static worker workers[MAX_THREADS];
  size_t threads = (size_t)asked->prompt[0];
  bool newcomer = strcmp(asked->kind, "newcomer") == 0;
  atomic_store(&decoding, 0);
  atomic_store(&measuring, false);
  for (size_t i = 0; i < threads; i++) {
    workers[i] = (worker){.context = open_context(model, false), .prompt = tokens + i, .count = 32};
    workers[i].max_tokens = asked->max_tokens;
    if (pthread_create(&workers[i].thread, NULL, run, &workers[i])) exit(1);
  }
  while (atomic_load(&decoding) < threads) {
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
  worker other = {.context = open_context(model, false), .prompt = tokens, .max_tokens = 1};
  other.count = newcomer ? 32 : count;
  atomic_store(&measuring, true);
  double begun = now();
  generate(&other);
  atomic_store(&measuring, false);
  double result = newcomer ? other.first - begun : 0;
  for (size_t i = 0; i < threads; i++) check(cow_mlx_context_cancel(workers[i].context));
  for (size_t i = 0; i < threads; i++) {
    pthread_join(workers[i].thread, NULL);
    if (!newcomer && workers[i].gap > result) result = workers[i].gap;
    check(cow_mlx_context_free(workers[i].context));
  }
  check(cow_mlx_context_free(other.context));
  return result;
}

static double two_models(const cow_mlx_model* models, const task* asked, const int32_t* tokens) {
  worker workers[2];
  bool both = strcmp(asked->kind, "both") == 0;
  double begun = now();
  for (int i = 0; i < 2; i++) {
    workers[i] = (worker){.context = open_context(models[i], false), .prompt = tokens, .count = 32};
    workers[i].max_tokens = asked->max_tokens;
    if (pthread_create(&workers[i].thread, NULL, run, &workers[i])) exit(1);
    if (!both) pthread_join(workers[i].thread, NULL);
  }
  for (int i = 0; both && i < 2; i++) pthread_join(workers[i].thread, NULL);
  double taken = now() - begun;
  for (int i = 0; i < 2; i++) check(cow_mlx_context_free(workers[i].context));
  return taken;
}

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) return 2;
  static task asked;
  cow_mlx_model models[2] = {start(argv[1])};
  check(cow_mlx_model_load(argv[argc - 1], NULL, &models[1]));
  ready();
  while (read_task(&asked)) {
    const int32_t* tokens = asked.prompt + 1;
    size_t count = asked.count - 1;
    bool beside = strcmp(asked.kind, "newcomer") == 0 || strcmp(asked.kind, "prefill") == 0;
    if (count < 32 + MAX_THREADS || asked.prompt[0] > MAX_THREADS) return 2;
    printf("%.6f\n", beside ? beside_others(models[0], &asked, tokens, count)
                            : two_models(models, &asked, tokens));
    fflush(stdout);
  }
  return 0;
}
