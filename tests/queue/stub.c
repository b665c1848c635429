/* Part of the same unit as the queue, to look into it. */
#include "stub.h"

#include <sched.h>
#include <stdatomic.h>

#include "../../csrc/queue/queue.c"

enum { MAX_PARKED = 64 };

typedef struct parked {
  cow_request* request; /* NULL: free */
  uint32_t steps;
} parked;

static parked table[MAX_PARKED];
static atomic_int parked_count;
static atomic_int woken_count;
static pthread_t thread;
int32_t stub_history[STUB_HISTORY];
int stub_history_length;

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool reached;
  bool open;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void stub_open_gate(void) {
  pthread_mutex_lock(&gate.lock);
  gate.open = true;
  pthread_cond_broadcast(&gate.changed);
  pthread_mutex_unlock(&gate.lock);
}

void stub_wait_at_gate(void) {
  pthread_mutex_lock(&gate.lock);
  while (!gate.reached) pthread_cond_wait(&gate.changed, &gate.lock);
  pthread_mutex_unlock(&gate.lock);
}

static void pass_gate(void) {
  pthread_mutex_lock(&gate.lock);
  gate.reached = true;
  pthread_cond_broadcast(&gate.changed);
  while (!gate.open) pthread_cond_wait(&gate.changed, &gate.lock);
  gate.open = gate.reached = false;
  pthread_mutex_unlock(&gate.lock);
}

static const stub_args* args_of(const cow_request* request) { return request->args; }

static void end(cow_request* request, cow_mlx_status status) {
  cow_queue_finish(request, status);
#ifdef BUG_TOUCH_AFTER_FINISH
  request->status = status; /* the caller owns it again */
#endif
}

static void park(cow_request* request) {
  parked* slot = table;
  while (slot->request) slot++;
  slot->request = request;
  slot->steps = 0;
  atomic_fetch_add(&parked_count, 1);
}

static void unpark(parked* slot, cow_mlx_status status) {
  cow_request* request = slot->request;
  slot->request = NULL;
  atomic_fetch_sub(&parked_count, 1);
  end(request, status);
}

static void run(cow_request* request) {
  switch (args_of(request)->token) {
    case STUB_PARK:
    case STUB_EVENTS:
    case STUB_FOREVER:
      park(request);
      return;
    case STUB_GATE:
      pass_gate();
      break;
    case STUB_FAIL:
      snprintf(request->message, COW_MESSAGE_SIZE, "failed: %d", (int)args_of(request)->handle);
      end(request, COW_MLX_EINVAL);
      return;
    default:
      if (stub_history_length < STUB_HISTORY) {
        stub_history[stub_history_length++] = args_of(request)->handle;
      }
  }
  end(request, COW_MLX_OK);
}

/* True if it did anything. */
static bool tell(parked* slot) {
  cow_request* request = slot->request;
  if (cow_queue_refused(request)) {
    unpark(slot, COW_MLX_ECANCELED);
  } else if (!cow_queue_can_post(request)) {
    return false;
  } else if (slot->steps == args_of(request)->flags) {
    unpark(slot, COW_MLX_OK);
  } else {
    char* text = malloc(STUB_TEXT);
    int length = snprintf(text, STUB_TEXT, "%u", (unsigned)slot->steps++);
    cow_event event = {.kind = COW_EVENT_TEXT, .text = text, .length = (size_t)length};
    cow_queue_post(request, &event);
    if (slot->steps % 2) cow_queue_linger(request);
#ifdef BUG_READ_OUTSIDE_LOCK
    while (*(volatile cow_event_kind*)&request->event.kind != COW_EVENT_NONE) sched_yield();
#endif
  }
  return true;
}

static bool advance(parked* slot) {
  cow_request* request = slot->request;
  switch (args_of(request)->token) {
    case STUB_EVENTS:
      return tell(slot);
    case STUB_FOREVER:
      if (cow_handle_cancels(args_of(request)->handle) == request->cancel_epoch) return false;
      unpark(slot, COW_MLX_ECANCELED);
      return true;
    default:
      if (slot->steps++ == args_of(request)->flags) unpark(slot, COW_MLX_OK);
      return true;
  }
}

static bool step(void) {
  bool worked = false;
  for (int i = 0; i < MAX_PARKED; i++) {
    if (table[i].request) worked |= advance(&table[i]);
  }
  return worked;
}

static void cancel_parked(void) {
  for (int i = 0; i < MAX_PARKED; i++) {
    if (!table[i].request) continue;
    snprintf(table[i].request->message, COW_MESSAGE_SIZE, "cancelled while parked");
    unpark(&table[i], COW_MLX_ECANCELED);
  }
}

static void* serve(void* unused) {
  unsigned sleeps = 0;
  while (cow_queue_is_open()) {
    cow_request* request = cow_queue_take();
    if (request && request->op == COW_OP_RUNTIME_STOP) {
      cow_queue_close();
      cancel_parked();
      end(request, COW_MLX_OK);
    } else if (request) {
      run(request);
    } else if (!step() && cow_queue_sleep(sleeps++ % 2 ? 20 : -1)) { /* some end by themselves */
      atomic_fetch_add(&woken_count, 1);
    }
  }
  cancel_parked();
  return unused;
}

void stub_start(void) {
  stub_history_length = 0;
  cow_queue_open();
  pthread_create(&thread, NULL, serve, NULL);
}

void stub_stop_by_request(void) {
  cow_failure* failure = cow_error_failure();
  cow_request request = {
      .op = COW_OP_RUNTIME_STOP, .message = failure->message, .details = failure->details};
  cow_queue_submit(&request);
  pthread_join(thread, NULL);
}

void stub_stop_by_closing(void) {
  cow_queue_close();
  cow_queue_wake();
  pthread_join(thread, NULL);
}

int stub_queued(void) {
  int count = 0;
  pthread_mutex_lock(&queue.lock);
  for (cow_request* request = queue.first; request; request = request->next) count++;
  pthread_mutex_unlock(&queue.lock);
  return count;
}

int stub_parked(void) { return atomic_load(&parked_count); }
int stub_woken(void) { return atomic_load(&woken_count); }
