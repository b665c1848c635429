/* Threads on the public calls, with the dispatch thread of stub_bootstrap.c. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cow_mlx.h"

enum { THREADS = 8, ROUNDS = 50 };

#define EXPECT(condition)                                                         \
  do {                                                                            \
    if (!(condition)) {                                                           \
      fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, \
              cow_mlx_error_message());                                           \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)

static const int32_t prompt[] = {1, 2, 3};
static atomic_int logged;
static atomic_bool over;

static void on_log(int32_t level, const char* message, void* user_data) {
  EXPECT(level == COW_MLX_LOG_INFO && message[0]);
  atomic_fetch_add((atomic_int*)user_data, 1);
}

static void each(void* (*body)(void*), int count) {
  pthread_t threads[THREADS];
  for (int i = 0; i < count; i++) EXPECT(pthread_create(&threads[i], NULL, body, NULL) == 0);
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

static cow_mlx_status generate(cow_mlx_context context, cow_mlx_text_fn on_text, void* user_data) {
  return cow_mlx_context_generate(context, prompt, 3, NULL, on_text, user_data, NULL);
}

/* Between a thread's own start and stop every call works. */
static void* start_and_stop(void* unused) {
  cow_mlx_runtime_params params;
  cow_mlx_runtime_params_init(&params, sizeof params);
  params.log = on_log;
  params.log_user_data = &logged;
  for (int round = 0; round < ROUNDS; round++) {
    EXPECT(cow_mlx_runtime_start(&params) == COW_MLX_OK);
    EXPECT(cow_mlx_memory_trim() == COW_MLX_OK);
    EXPECT(cow_mlx_runtime_stop() == COW_MLX_OK);
  }
  return unused;
}

static void storm(void) {
  each(start_and_stop, THREADS);
  EXPECT(cow_mlx_runtime_stop() == COW_MLX_ESTATE);
  EXPECT(atomic_load(&logged) > 0);
}

static bool on_text(const char* text, size_t length, void* user_data) {
  EXPECT(length == 4 && memcmp(text, "text", 4) == 0);
  EXPECT(cow_mlx_context_reset(1) < 0); /* a call in a callback, which fails */
  return ++*(int*)user_data < 5;
}

/* Calls while another thread starts and stops: each ends, and says why. */
static void* call_always(void* unused) {
  while (!atomic_load(&over)) {
    cow_mlx_context context = 0;
    cow_mlx_status status = cow_mlx_context_create(1, NULL, &context);
    if (status == COW_MLX_OK) {
      int texts = 0;
      status = generate(context, on_text, &texts);
      EXPECT(status < 0);
    }
    EXPECT(status == COW_MLX_ESTATE || status == COW_MLX_ECANCELED);
    EXPECT(cow_mlx_error_message()[0]);
    cow_mlx_context_cancel(context);
    cow_mlx_context_free(context);
  }
  return unused;
}

static void* stop_often(void* unused) {
  start_and_stop(unused);
  atomic_store(&over, true);
  return unused;
}

static void interrupted_calls(void) {
  pthread_t stopper;
  EXPECT(pthread_create(&stopper, NULL, stop_often, NULL) == 0);
  each(call_always, THREADS);
  pthread_join(stopper, NULL);
}

/* A generation that only a cancellation or a free from outside can end. */
static bool go_on(const char* text, size_t length, void* user_data) {
  (void)text, (void)length;
  atomic_store((atomic_bool*)user_data, true);
  return true;
}

typedef struct victim {
  cow_mlx_context context;
  atomic_bool runs;
} victim;

static void* run_victim(void* data) {
  victim* v = data;
  EXPECT(generate(v->context, go_on, &v->runs) == COW_MLX_ECANCELED);
  EXPECT(strcmp(cow_mlx_error_message(), "context_generate: ended") == 0);
  return NULL;
}

static void* end_others(void* unused) {
  for (int round = 0; round < ROUNDS; round++) {
    victim v = {0};
    pthread_t thread;
    EXPECT(cow_mlx_context_create(1, NULL, &v.context) == COW_MLX_OK);
    EXPECT(pthread_create(&thread, NULL, run_victim, &v) == 0);
    while (!atomic_load(&v.runs)) EXPECT(cow_mlx_memory_trim() == COW_MLX_OK);
    if (round % 2) EXPECT(cow_mlx_context_cancel(v.context) == COW_MLX_OK);
    EXPECT(cow_mlx_context_free(v.context) == COW_MLX_OK);
    EXPECT(cow_mlx_context_cancel(v.context) == COW_MLX_EHANDLE);
    pthread_join(thread, NULL);
  }
  return unused;
}

static void cancelled_calls(void) {
  EXPECT(cow_mlx_runtime_start(NULL) == COW_MLX_OK);
  each(end_others, THREADS);
  EXPECT(cow_mlx_runtime_stop() == COW_MLX_OK);
}

static bool on_prompt(size_t processed, size_t total, void* user_data) {
  EXPECT(processed == 3 && total == 3);
  *(bool*)user_data = true;
  return true;
}

static bool is_readable(int fd) {
  struct pollfd looked = {.fd = fd, .events = POLLIN};
  return poll(&looked, 1, 0) == 1;
}

/* Begin at once, and take every piece: by looking often, as its descriptor says, or waiting. */
static void take_all(cow_mlx_context context, int how) {
  bool told = false;
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.prompt_progress = on_prompt;
  params.user_data = &told;
  params.stop = (const char* const[]){"a", "b"};
  params.stop_count = 2;
  EXPECT(cow_mlx_context_begin_async(context, prompt, 3, &params) == COW_MLX_OK);
  int32_t fd = -1;
  EXPECT(cow_mlx_context_wake_fd(context, &fd) == COW_MLX_OK);
  int texts = 0;
  cow_mlx_status status = COW_MLX_OK;
  while (status == COW_MLX_OK) {
    char text[8];
    size_t length;
    if (how == 0) {
      while (cow_mlx_context_poll(context, 0) == COW_MLX_ETIMEDOUT) sched_yield();
    } else if (how == 1) {
      struct pollfd waited = {.fd = fd, .events = POLLIN};
      EXPECT(poll(&waited, 1, -1) == 1);
      if (cow_mlx_context_poll(context, 0) == COW_MLX_ETIMEDOUT) continue;
    }
    status = cow_mlx_context_next(context, text, sizeof text, &length, NULL);
    texts += status == COW_MLX_OK && length == 4;
  }
  EXPECT(status == COW_MLX_DONE && texts == 5 && told && is_readable(fd));
}

static void* begin_at_once(void* unused) {
  for (int round = 0; round < ROUNDS; round++) {
    cow_mlx_context context;
    EXPECT(cow_mlx_context_create(1, NULL, &context) == COW_MLX_OK);
    for (int how = 0; how < 3; how++) take_all(context, how);
    if (round % 2) { /* freed in whatever state it is */
      EXPECT(cow_mlx_context_begin_async(context, prompt, 3, NULL) == COW_MLX_OK);
    }
    EXPECT(cow_mlx_context_free(context) == COW_MLX_OK);
    EXPECT(cow_mlx_context_begin_async(context, prompt, 3, NULL) == COW_MLX_EHANDLE);
  }
  return unused;
}

/* It looks at nothing that others have. */
static void* wait_for_end(void* data) {
  size_t length;
  cow_mlx_status status = COW_MLX_OK;
  while (status == COW_MLX_OK) {
    char text[8];
    status = cow_mlx_context_next(*(cow_mlx_context*)data, text, sizeof text, &length, NULL);
  }
  EXPECT(status == COW_MLX_DONE || status == COW_MLX_ECANCELED || status == COW_MLX_ESTATE);
  return NULL;
}

/* The runtime stops while others wait. */
static void stop_below(void) {
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t thread;
    cow_mlx_context context;
    EXPECT(cow_mlx_runtime_start(NULL) == COW_MLX_OK);
    EXPECT(cow_mlx_context_create(1, NULL, &context) == COW_MLX_OK);
    EXPECT(cow_mlx_context_begin_async(context, prompt, 3, NULL) == COW_MLX_OK);
    EXPECT(pthread_create(&thread, NULL, wait_for_end, &context) == 0);
    EXPECT(cow_mlx_runtime_stop() == COW_MLX_OK);
    pthread_join(thread, NULL);
  }
}

static void calls_at_once(void) {
  EXPECT(cow_mlx_runtime_start(NULL) == COW_MLX_OK);
  each(begin_at_once, THREADS);
  EXPECT(cow_mlx_runtime_stop() == COW_MLX_OK);
  stop_below();
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } scenarios[] = {{"storm", storm},
                   {"interrupted", interrupted_calls},
                   {"cancelled", cancelled_calls},
                   {"at_once", calls_at_once}};
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
    if (argc == 2 && strcmp(argv[1], scenarios[i].name) == 0) {
      scenarios[i].run();
      return 0;
    }
  }
  fprintf(stderr, "usage: %s SCENARIO\n", argv[0]);
  return 2;
}
