/* csrc/boot/bootstrap.c without Python: the dispatch thread carries out what calls.c
 * sends with an executor of a few lines. Text results are empty, contexts are
 * numbers, and a generation tells one text after the other until it is ended. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/arrays.h"
#include "boot/bootstrap.h"
#include "base/error.h"
#include "base/handles.h"
#include "queue/outlets.h"
#include "queue/queue.h"

enum { MAX_PARKED = 64, MAX_CONTEXTS = 64, PIECES = 5 };

static cow_request* parked[MAX_PARKED];

/* Contexts that were begun by a call that returned at once: each gives some pieces, which it is
 * offered one after the other, and ends. */
static struct {
  int32_t context; /* 0: free */
  uint32_t round;
  int left;
  bool waits; /* for its host to take the last one */
} begun[MAX_CONTEXTS];

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool serving;
} dispatch = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void cow_arrays_before_fork(void) {}
void cow_arrays_after_fork(void) {}

/* Nobody brings batches here. */
bool cow_arrays_close(cow_mlx_array array) {
  (void)array;
  return false;
}

static void log_to(cow_request* request, const char* message) {
  request->log_message = strdup(message);
  request->log_level = COW_MLX_LOG_INFO;
}

static void end(cow_request* request, cow_mlx_status status) {
  if (status < 0) snprintf(request->message, COW_MESSAGE_SIZE, "%s: ended", request->operation);
  cow_queue_finish(request, status);
}

static int32_t context_of(const cow_request* generate) {
  return ((const cow_context_generate_args*)generate->args)->context;
}

static void cancel_parked(int32_t context) {
  for (int i = 0; i < MAX_PARKED; i++) {
    if (!parked[i] || (context && context_of(parked[i]) != context)) continue;
    end(parked[i], COW_MLX_ECANCELED);
    parked[i] = NULL;
  }
}

static void park(cow_request* request) {
  int i = 0;
  while (parked[i]) i++;
  parked[i] = request;
}

static void forget_begun(int32_t context) {
  for (int i = 0; i < MAX_CONTEXTS; i++) {
    if (begun[i].context == context || !context) begun[i].context = 0;
  }
}

/* Of a context that was begun before, the place is used again. */
static void begin(cow_request* request) {
  const cow_context_begin_args* args = request->args;
  int place = 0;
  for (int i = 0; i < MAX_CONTEXTS; i++) {
    if (!begun[i].context) place = i;
  }
  for (int i = 0; i < MAX_CONTEXTS; i++) {
    if (begun[i].context == args->context) place = i;
  }
  cow_outlets_taken(args->context, true);
  if (!request->round) cow_outlets_clear(args->context);
  begun[place].context = args->context;
  begun[place].round = cow_outlets_begin(args->context, request->round, request->cancel_epoch);
  begun[place].left = PIECES;
  begun[place].waits = false;
  cow_event event = {.kind = COW_EVENT_PROMPT, .processed = args->tokens.count, .total = 3};
  cow_queue_post(request, &event);
}

static void close_contexts(void) {
  for (int i = 0; i < MAX_CONTEXTS; i++) {
    if (begun[i].context) cow_outlets_close(begun[i].context);
  }
  forget_begun(0);
}

static bool offer_pieces(void) {
  bool offered = false;
  for (int i = 0; i < MAX_CONTEXTS; i++) {
    if (!begun[i].context) continue;
    if (begun[i].waits) begun[i].waits = cow_outlets_taken(begun[i].context, false) == 0;
    if (begun[i].waits || begun[i].left < 0) continue;
    bool is_end = begun[i].left-- == 0;
    cow_offer offer = {.status = is_end ? COW_MLX_DONE : COW_MLX_OK,
                       .is_end = is_end,
                       .counts = !is_end,
                       .finish = is_end ? COW_MLX_FINISH_LENGTH : COW_MLX_FINISH_NONE,
                       .text = is_end ? "" : "text",
                       .length = is_end ? 0 : 4};
    cow_outlets_offer(begun[i].context, begun[i].round, &offer);
    begun[i].waits = !is_end;
    offered = true;
  }
  return offered;
}

static void run(cow_request* request) {
  switch (request->op) {
    case COW_OP_RUNTIME_START:
      log_to(request, "started");
      break;
    case COW_OP_RUNTIME_STOP:
      cow_queue_close();
      cancel_parked(0);
      close_contexts();
      log_to(request, "stopped");
      break;
    case COW_OP_CONTEXT_CREATE:
      log_to(request, "opened");
      *((const cow_context_create_args*)request->args)->out = cow_handle_open(COW_KIND_CONTEXT);
      break;
    case COW_OP_CONTEXT_FREE: {
      int32_t context = ((const cow_context_free_args*)request->args)->context;
      cow_outlets_close(context);
      forget_begun(context);
      cancel_parked(context);
      break;
    }
    case COW_OP_CONTEXT_BEGIN:
      begin(request);
      break;
    case COW_OP_CONTEXT_GENERATE:
      park(request);
      return;
    case COW_OP_CONTEXT_RESET:
      end(request, COW_MLX_ESTATE);
      return;
    default:
      break;
  }
  end(request, COW_MLX_OK);
}

static bool step(void) {
  bool worked = offer_pieces();
  for (int i = 0; i < MAX_PARKED; i++) {
    cow_request* request = parked[i];
    if (!request) continue;
    if (cow_queue_refused(request) ||
        cow_handle_cancels(context_of(request)) != request->cancel_epoch) {
      parked[i] = NULL;
      end(request, COW_MLX_ECANCELED);
    } else if (cow_queue_can_post(request)) {
      cow_event event = {.kind = COW_EVENT_TEXT, .text = strdup("text"), .length = 4};
      cow_queue_post(request, &event);
    } else {
      continue;
    }
    worked = true;
  }
  return worked;
}

static void* serve(void* start) {
  run(start);
  cow_queue_open();
  pthread_mutex_lock(&dispatch.lock);
  dispatch.serving = true;
  pthread_cond_broadcast(&dispatch.changed);
  pthread_mutex_unlock(&dispatch.lock);
  while (cow_queue_is_open()) {
    cow_request* request = cow_queue_take();
    if (request) {
      run(request);
    } else if (!step()) {
      cow_queue_sleep(-1);
    }
  }
  pthread_mutex_lock(&dispatch.lock);
  dispatch.serving = false;
  pthread_cond_broadcast(&dispatch.changed);
  pthread_mutex_unlock(&dispatch.lock);
  return NULL;
}

static void await(bool serving) {
  pthread_mutex_lock(&dispatch.lock);
  while (dispatch.serving != serving) pthread_cond_wait(&dispatch.changed, &dispatch.lock);
  pthread_mutex_unlock(&dispatch.lock);
}

cow_mlx_status cow_bootstrap_start(const cow_mlx_runtime_params* params, cow_request* start,
                                   void (*at_exit)(void)) {
  (void)params, (void)at_exit;
  static cow_failure failure;
  start->message = failure.message;
  start->details = failure.details;
  pthread_t thread;
  if (pthread_create(&thread, NULL, serve, start)) return COW_MLX_ENOMEM;
  pthread_detach(thread);
  await(true);
  return COW_MLX_OK;
}

void cow_bootstrap_wait_parked(int seconds) {
  (void)seconds;
  await(false);
}

void* cow_bootstrap_release_interpreter(void) { return NULL; }

void cow_bootstrap_after_fork(void) {}

void cow_bootstrap_restore_interpreter(void* state) { (void)state; }
