/*
 * Many contexts, a thread each: crowd MODEL
 *
 * Prints "ready", then answers each line "KIND COUNT THREADS TOKEN..." with "RATE FIRST
 * SLOWEST FASTEST STEADY LAST": tokens/s of all threads together while they decode, the median
 * seconds to the first token, the tokens/s of the slowest and of the fastest context, the tokens/s
 * of all while none is missing, 0 if one always was, and the seconds until all had their first
 * token. KIND is "together", "alone" (solo contexts), "asked" (together, with a
 * logits_fn that changes nothing) or "locked": whole generations one after the other, behind one
 * lock.
 * Tokens are greedy, or sampled at a temperature behind the kind: "together@0.8".
 */
#include "host.h"

enum { MAX_THREADS = 64 };

typedef struct worker {
  pthread_t thread;
  cow_mlx_context context;
  const task* asked;
  size_t index;
  size_t tokens;
  double begun;
  double first;
  double last;
  double times[MAX_TOKENS];
} worker;

static gate all_there = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static bool is(const task* asked, const char* kind) {
  return strcspn(asked->kind, "@") == strlen(kind) && strncmp(asked->kind, kind, strlen(kind)) == 0;
}

static bool change_nothing(const int32_t* tokens, size_t count, float* logits, size_t vocabulary,
                           void* user_data) {
  (void)tokens, (void)count, (void)logits, (void)vocabulary, (void)user_data;
  return true;
}

static void* run(void* data) {
  worker* self = data;
  static int32_t prompts[MAX_THREADS][MAX_TOKENS];
  const int32_t* given = self->asked->prompt + 1;
  size_t count = self->asked->count - 1;
  int32_t* prompt = prompts[self->index];
  for (size_t i = 0; i < count; i++) prompt[i] = given[(i + 7 * self->index) % count];
  bool locked = is(self->asked, "locked");
  const char* temperature = strchr(self->asked->kind, '@');
  cow_mlx_generation_params params = greedy(self->asked->max_tokens);
  if (temperature) params.temperature = strtof(temperature + 1, NULL);
  params.seed = self->index;
  if (is(self->asked, "asked")) params.logits_fn = change_nothing;
  check(cow_mlx_context_reset(self->context));
  pass(&all_there);
  self->begun = now();
  if (locked) pthread_mutex_lock(&one_at_a_time);
  self->tokens = decode(self->context, prompt, count, &params, self->times);
  self->first = self->times[0];
  self->last = self->times[self->tokens - 1];
  if (locked) pthread_mutex_unlock(&one_at_a_time);
  return NULL;
}

/* Tokens/s from when the last context has its first token to when the first has its last. */
static double steady(const worker* workers, size_t count) {
  double begun = workers[0].first;
  double ended = workers[0].last;
  for (size_t i = 1; i < count; i++) {
    if (workers[i].first > begun) begun = workers[i].first;
    if (workers[i].last < ended) ended = workers[i].last;
  }
  if (ended <= begun) return 0;
  size_t tokens = 0;
  for (size_t i = 0; i < count; i++) {
    for (size_t at = 0; at < workers[i].tokens; at++) {
      double time = workers[i].times[at];
      if (time > begun && time <= ended) tokens++;
    }
  }
  return (double)tokens / (ended - begun);
}

static void answer(cow_mlx_model model, const task* asked) {
  static worker workers[MAX_THREADS];
  size_t count = (size_t)asked->prompt[0];
  cow_mlx_context_params params;
  cow_mlx_context_params_init(&params, sizeof params);
  params.share_prefix = false;
  params.solo = !is(asked, "together") && !is(asked, "asked");
  all_there.missing = count;
  for (size_t i = 0; i < count; i++) {
    workers[i].asked = asked;
    workers[i].index = i;
    check(cow_mlx_context_create(model, &params, &workers[i].context));
  }
  for (size_t i = 0; i < count; i++) {
    if (pthread_create(&workers[i].thread, NULL, run, &workers[i])) exit(1);
  }
  double waits[MAX_THREADS];
  double rates[MAX_THREADS];
  double first = 0;
  double last = 0;
  size_t tokens = 0;
  for (size_t i = 0; i < count; i++) {
    worker* one = &workers[i];
    pthread_join(one->thread, NULL);
    check(cow_mlx_context_free(one->context));
    waits[i] = one->first - one->begun;
    rates[i] = (double)(one->tokens - 1) / (one->last - one->first);
    tokens += one->tokens;
    if (i == 0 || one->first < first) first = one->first;
    if (one->last > last) last = one->last;
  }
  qsort(waits, count, sizeof *waits, compare);
  qsort(rates, count, sizeof *rates, compare);
  printf("%.6f %.6f %.6f %.6f %.6f %.6f\n", (double)tokens / (last - first), waits[count / 2],
         rates[0], rates[count - 1], steady(workers, count), waits[count - 1]);
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  static task asked;
  cow_mlx_model model = start(argv[1]);
  ready();
  while (read_task(&asked)) {
    size_t count = (size_t)asked.prompt[0];
    if (asked.count < 2 || count < 1 || count > MAX_THREADS) return 2;
    answer(model, &asked);
  }
  return 0;
}
