/* pthread_cancel() of threads inside calls: each call returns first, and the library goes on. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "host.h"

enum { ROUNDS = 20, PATIENCE = 250 };

typedef struct victim {
  session s;
  void (*call)(struct victim*);
  atomic_int begun;
  atomic_int ended;
  atomic_int heard; /* callbacks */
} victim;

/* A callback with a point at which a thread that can be cancelled ends. */
static bool on_text(const char* text, size_t length, void* data) {
  (void)text, (void)length;
  pthread_testcancel();
  atomic_fetch_add(&((victim*)data)->heard, 1);
  return true;
}

static void call_generate(victim* v) { EXPECT_OK(generate(&v->s, LENGTH, NULL, NULL)); }

static void call_generate_with_text(victim* v) { EXPECT_OK(generate(&v->s, LENGTH, on_text, v)); }

static void call_next(victim* v) {
  char text[64];
  size_t length;
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = LENGTH;
  if (atomic_load(&v->ended) % LENGTH == 0) {
    EXPECT_OK(cow_mlx_context_begin(v->s.context, v->s.tokens, v->s.count, &params));
  }
  EXPECT_OK(cow_mlx_context_poll(v->s.context, UINT32_MAX));
  EXPECT(cow_mlx_context_next(v->s.context, text, sizeof text, &length, NULL) >= COW_MLX_OK);
}

static void call_trim(victim* v) {
  (void)v;
  EXPECT_OK(cow_mlx_memory_trim());
}

static void call_start_and_stop(victim* v) {
  (void)v;
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  EXPECT_OK(cow_mlx_runtime_stop());
}

static void call_rewind(victim* v) {
  cow_mlx_checkpoint checkpoint;
  EXPECT_OK(cow_mlx_context_checkpoint(v->s.context, &checkpoint));
  EXPECT_OK(cow_mlx_context_rewind(v->s.context, checkpoint));
  EXPECT_OK(cow_mlx_checkpoint_free(checkpoint));
}

/* Its descriptor is looked at while an item lies there, with a lock that all outlets share. */
static void call_wake_fd(victim* v) {
  int32_t descriptor, unknown = INT32_MAX;
  if (atomic_load(&v->ended) == 0) {
    EXPECT_OK(cow_mlx_context_begin_async(v->s.context, &unknown, 1, NULL));
    EXPECT(cow_mlx_context_poll(v->s.context, UINT32_MAX) == COW_MLX_OK);
  }
  EXPECT_OK(cow_mlx_context_wake_fd(v->s.context, &descriptor));
}

static void* call_forever(void* data) {
  victim* v = data;
  for (;;) {
    atomic_fetch_add(&v->begun, 1);
    v->call(v);
    atomic_fetch_add(&v->ended, 1);
    pthread_testcancel();
  }
  return NULL;
}

static void end_in(victim* v, void (*call)(victim*)) {
  pthread_t thread;
  void* result;
  v->call = call;
  atomic_store(&v->begun, 0);
  atomic_store(&v->ended, 0);
  EXPECT_OK(cow_mlx_context_reset(v->s.context));
  EXPECT(pthread_create(&thread, NULL, call_forever, v) == 0);
  while (atomic_load(&v->begun) < 2) sched_yield();
  EXPECT(pthread_cancel(thread) == 0);
  EXPECT(pthread_join(thread, &result) == 0);
  EXPECT(result == PTHREAD_CANCELED);
  EXPECT(atomic_load(&v->begun) == atomic_load(&v->ended));
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  alarm(PATIENCE); /* a freeze ends the host */
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  victim v = {.s = open_session(argv[1])};
  static void (*const calls[])(victim*) = {call_generate, call_generate_with_text, call_next,
                                           call_trim,     call_start_and_stop,     call_rewind,
                                           call_wake_fd};
  for (int round = 0; round < ROUNDS; round++) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) end_in(&v, calls[i]);
  }
  EXPECT(atomic_load(&v.heard) > 0);
  EXPECT_OK(cow_mlx_context_reset(v.s.context));
  EXPECT_OK(generate(&v.s, LENGTH, print_text, NULL));
  EXPECT_OK(cow_mlx_runtime_stop());
  return 0;
}
