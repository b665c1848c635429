/* Many callers on the queue. One scenario per run, named by argv[1]; ends with
 * 0, or at the first thing that is not as it should be. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stub.h"

enum { CALLERS = 16, ROUNDS = 200 };

#define EXPECT(condition)                                                     \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

typedef struct caller {
  pthread_t thread;
  int index;
  int token; /* what it asks for */
  int32_t argument;
  bool submitted;
  cow_mlx_status status;
} caller;

static caller callers[CALLERS];

static bool call(cow_request* request) {
  cow_error_clear();
  cow_failure failure = {"", ""}; /* the thread's own is free for calls in callbacks */
  request->operation = "call";
  request->message = failure.message;
  request->details = failure.details;
  bool submitted = cow_queue_submit(request);
  cow_error_copy(cow_error_failure(), &failure);
  return submitted;
}

/* One call, its outcome noted. */
static void* call_once(void* data) {
  caller* self = data;
  cow_request request = {
      .args = &(stub_args){.token = self->token, .handle = self->argument, .flags = 3},
      .cancel_epoch = cow_handle_cancels(self->argument),
  };
  self->submitted = call(&request);
  self->status = request.status;
  if (self->submitted && request.status == COW_MLX_ECANCELED && self->token != STUB_FOREVER) {
    EXPECT(cow_mlx_error_message()[0]);
  }
  return NULL;
}

static void start(caller* self, int index, int token, int32_t argument, void* (*body)(void*)) {
  *self = (caller){.index = index, .token = token, .argument = argument};
  EXPECT(pthread_create(&self->thread, NULL, body, self) == 0);
}

static void join_all(int count) {
  for (int i = 0; i < count; i++) pthread_join(callers[i].thread, NULL);
}

static void start_all(void* (*body)(void*)) {
  for (int i = 0; i < CALLERS; i++) start(&callers[i], i, 0, 0, body);
}

/* ---------------------------------------------------------- Many callers */

typedef struct heard {
  unsigned next;      /* the event that is expected */
  unsigned refuse_at; /* the callback answers false to this one */
} heard;

static bool on_text(const char* text, size_t length, void* user_data) {
  heard* state = user_data;
  char expected[STUB_TEXT];
  int size = snprintf(expected, sizeof expected, "%u", state->next);
  EXPECT(length == (size_t)size);
  EXPECT(memcmp(text, expected, length) == 0);
  return state->next++ != state->refuse_at;
}

static void ask_events(unsigned count, unsigned refuse_at) {
  heard state = {.refuse_at = refuse_at};
  cow_request request = {.args = &(stub_args){.token = STUB_EVENTS, .flags = count},
                         .callbacks = {.text = on_text, .text_data = &state}};
  EXPECT(call(&request));
  bool refused = refuse_at < count;
  EXPECT(request.status == (refused ? COW_MLX_ECANCELED : COW_MLX_OK));
  EXPECT(state.next == (refused ? refuse_at + 1 : count));
}

static void* mixed_calls(void* data) {
  caller* self = data;
  char expected[32];
  for (int round = 0; round < ROUNDS; round++) {
    cow_request plain = {
        .args = &(stub_args){.token = round % 2 ? STUB_FINISH : STUB_PARK, .flags = 2}};
    EXPECT(call(&plain) && plain.status == COW_MLX_OK);
    EXPECT(cow_mlx_error_message()[0] == '\0');

    int number = self->index * ROUNDS + round;
    cow_request failing = {.args = &(stub_args){.token = STUB_FAIL, .handle = number}};
    EXPECT(call(&failing) && failing.status == COW_MLX_EINVAL);
    snprintf(expected, sizeof expected, "failed: %d", number);
    EXPECT(strcmp(cow_mlx_error_message(), expected) == 0);

    if (round % 8 == 0) ask_events(10, (unsigned)round % 16 ? UINT32_MAX : 4);
  }
  return NULL;
}

static void many(void) {
  stub_start();
  start_all(mixed_calls);
  join_all(CALLERS);
  stub_stop_by_request();
}

/* ---------------------------------------------------------------- Events */

static void refuse(void) {
  stub_start();
  for (unsigned at = 0; at <= 8; at++) ask_events(8, at); /* 8: none is refused */
  stub_stop_by_request();
}

/* A callback that calls the library while its own call waits. */
static bool nested(const char* text, size_t length, void* user_data) {
  (void)text, (void)length, (void)user_data;
  cow_request inner = {.args = &(stub_args){.token = STUB_FAIL}};
  EXPECT(call(&inner) && inner.status == COW_MLX_EINVAL);
  EXPECT(cow_mlx_error_message()[0]);
  return true;
}

static void nest(void) {
  stub_start();
  cow_request request = {.args = &(stub_args){.token = STUB_EVENTS, .flags = 50},
                         .callbacks = {.text = nested}};
  EXPECT(call(&request) && request.status == COW_MLX_OK);
  EXPECT(cow_mlx_error_message()[0] == '\0');
  stub_stop_by_request();
}

/* The call ends while its callback runs: what the callback has stays its own. */
static bool stop_inside(const char* text, size_t length, void* user_data) {
  (void)user_data;
  (void)cow_error(COW_MLX_EINVAL, "mine", COW_REASON_internal, NULL, "own");
  stub_stop_by_request();
  EXPECT(length == 1 && text[0] == '0');
  return true;
}

static void end_inside(void) {
  for (int round = 0; round < ROUNDS; round++) {
    stub_start();
    cow_request request = {.args = &(stub_args){.token = STUB_EVENTS, .flags = 50},
                           .callbacks = {.text = stop_inside}};
    EXPECT(call(&request) && request.status == COW_MLX_ECANCELED);
    EXPECT(strcmp(cow_mlx_error_message(), "cancelled while parked") == 0);
  }
}

/* ----------------------------------------------------------------- Order */

/* Requests that pile up behind one are run in the order in which they came. */
static void order(void) {
  stub_start();
  start(&callers[0], 0, STUB_GATE, 0, call_once);
  stub_wait_at_gate();
  for (int i = 1; i < CALLERS; i++) {
    start(&callers[i], i, STUB_FINISH, i, call_once);
    while (stub_queued() < i) sched_yield();
  }
  stub_open_gate();
  join_all(CALLERS);
  stub_stop_by_request();
  EXPECT(stub_history_length == CALLERS - 1);
  for (int i = 1; i < CALLERS; i++) EXPECT(stub_history[i - 1] == i);
}

/* ----------------------------------------------------------------- Close */

/* Close while some requests wait to be taken and others are parked. */
static void close_full(void (*stop)(void)) {
  stub_start();
  for (int i = 0; i < CALLERS / 2; i++) start(&callers[i], i, STUB_FOREVER, 0, call_once);
  while (stub_parked() < CALLERS / 2) sched_yield();
  start(&callers[CALLERS / 2], 0, STUB_GATE, 0, call_once);
  stub_wait_at_gate();
  for (int i = CALLERS / 2 + 1; i < CALLERS; i++) start(&callers[i], i, STUB_PARK, 0, call_once);
  while (stub_queued() < CALLERS / 2 - 1) sched_yield();
  bool from_here = stop == stub_stop_by_closing;
  if (from_here) cow_queue_close(); /* while nothing can be taken */
  stub_open_gate();
  stop();
  join_all(CALLERS);
  for (int i = 0; i < CALLERS; i++) {
    EXPECT(callers[i].submitted);
    if (i < CALLERS / 2) {
      EXPECT(callers[i].status == COW_MLX_ECANCELED);
    } else if (i == CALLERS / 2) {
      EXPECT(callers[i].status == COW_MLX_OK);
    } else if (from_here) {
      EXPECT(callers[i].status == COW_MLX_ECANCELED);
    } else {
      EXPECT(callers[i].status == COW_MLX_ECANCELED || callers[i].status == COW_MLX_OK);
    }
  }
  cow_request late = {.args = &(stub_args){.token = STUB_FINISH}};
  EXPECT(!call(&late));
}

static void* call_until_closed(void* data) {
  caller* self = data;
  for (;;) {
    cow_request request = {
        .args = &(stub_args){.token = STUB_PARK, .flags = (uint32_t)self->index % 3}};
    if (!call(&request)) return NULL;
    EXPECT(request.status == COW_MLX_OK || request.status == COW_MLX_ECANCELED);
  }
}

static void close_scenario(void) {
  for (int round = 0; round < 5; round++) {
    close_full(stub_stop_by_closing);
    close_full(stub_stop_by_request);
    stub_start();
    start_all(call_until_closed);
    mixed_calls(&(caller){.index = CALLERS});
    (round % 2 ? stub_stop_by_closing : stub_stop_by_request)();
    join_all(CALLERS);
  }
}

/* ---------------------------------------------------------------- Cancel */

static void cancel(void) {
  stub_start();
  for (int round = 0; round < ROUNDS; round++) {
    cow_mlx_context context = cow_handle_open(COW_KIND_CONTEXT);
    start(&callers[0], 0, STUB_FOREVER, context, call_once);
    while (stub_parked() < 1) sched_yield();
    /* The slot's next generation. */
    EXPECT(!cow_handle_cancel(COW_KIND_CONTEXT, context + COW_HANDLE_SLOTS));
    EXPECT(!cow_handle_cancel(COW_KIND_PROGRAM, context));
    EXPECT(cow_handle_cancel(COW_KIND_CONTEXT, context));
    cow_queue_wake();
    join_all(1);
    EXPECT(callers[0].status == COW_MLX_ECANCELED);
    EXPECT(cow_handle_close(context));
    EXPECT(!cow_handle_cancel(COW_KIND_CONTEXT, context));
  }
  stub_stop_by_request();
}

/* ---------------------------------------------------------------- Release */

/* The dispatch thread wakes for it from a sleep without end, too. */
static void release(void) {
  stub_start();
  for (int round = 0; round < ROUNDS; round++) {
    int before = stub_woken();
    cow_queue_wake_to_release();
    while (stub_woken() == before) sched_yield();
    start(&callers[0], 0, STUB_FINISH, round, call_once);
    cow_queue_wake_to_release(); /* beside a request, which it may not delay */
    join_all(1);
    EXPECT(callers[0].status == COW_MLX_OK);
  }
  stub_stop_by_request();
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } scenarios[] = {{"many", many},      {"refuse", refuse},  {"nest", nest},
                   {"end", end_inside}, {"order", order},    {"close", close_scenario},
                   {"cancel", cancel},  {"release", release}};
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
    if (argc == 2 && strcmp(argv[1], scenarios[i].name) == 0) {
      scenarios[i].run();
      return 0;
    }
  }
  fprintf(stderr, "usage: %s SCENARIO\n", argv[0]);
  return 2;
}
