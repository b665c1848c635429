/* One outlet and what its host sees; here one thread is the host and the dispatch thread. One
 * scenario per run, named by argv[1]. */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/handles.h"
#include "queue/outlets.h"
#include "queue/queue.h"
#include "queue/semaphores.h"
#include "queue/taking.h"

#define EXPECT(condition)                                                     \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

enum { MOST = 100 };

/* A call that has returned at once, and how often its callback ran. */
static cow_failure failure;
static cow_request call = {
    .operation = "call", .message = failure.message, .details = failure.details};
static int told;
static int64_t busy; /* microseconds that a callback takes */

static bool is_past(const struct timespec* at) {
  struct timespec now = cow_time_after(0);
  return now.tv_sec > at->tv_sec || (now.tv_sec == at->tv_sec && now.tv_nsec > at->tv_nsec);
}

static void post(size_t processed) {
  cow_event event = {.kind = COW_EVENT_PROMPT, .processed = processed, .total = MOST};
  cow_outlets_post(&call, &event);
}

/* Each callback posts more progress. */
static bool on_prompt(size_t processed, size_t total, void* unused) {
  (void)unused;
  EXPECT(processed == (size_t)told && total == MOST);
  const struct timespec over = cow_time_after(busy);
  if (++told < MOST) post((size_t)told);
  while (busy && !is_past(&over)) continue;
  return true;
}

static void begin(void) {
  call.callbacks.prompt = on_prompt;
  if (!call.context) call.context = cow_handle_open(COW_KIND_CONTEXT);
  EXPECT(cow_outlets_open_round(COW_KIND_CONTEXT, call.context, &call.callbacks, 0, &call.round) ==
         COW_MLX_OK);
}

static bool take_offer(const cow_offer* offer, void* into) {
  *(cow_offer*)into = *offer;
  return true;
}

static cow_found take(uint32_t milliseconds, cow_offer* offer) {
  return cow_outlets_take(COW_KIND_CONTEXT, call.context, milliseconds, take_offer, offer, true);
}

static void offer_piece(uint32_t round) {
  cow_offer piece = {.counts = true, .text = "text", .length = 4, .name = ""};
  EXPECT(cow_outlets_offer(call.context, round, &piece));
}

static bool is_readable(int fd) {
  struct pollfd looked = {.fd = fd, .events = POLLIN};
  return poll(&looked, 1, 0) == 1;
}

/* Once the time is over, a look ends behind one callback. */
static void progress(void) {
  cow_offer offer;
  begin();
  post(0);
  for (int looks = 1; looks <= 3; looks++) {
    EXPECT(take(0, &offer) == COW_FOUND_NOT_YET);
    EXPECT(told == looks);
  }
  busy = 2000;
  int before = told;
  EXPECT(take(1, &offer) == COW_FOUND_NOT_YET);
  EXPECT(told - before <= 2);
  busy = 0;
  offer_piece(call.round);
  EXPECT(take(0, &offer) == COW_FOUND_ITEM && offer.length == 4);
}

/* Nothing of a generation is left when its context has none, or another one. */
static void clear(void) {
  cow_offer offer;
  begin();
  int fd = cow_outlets_fd(COW_KIND_CONTEXT, call.context);
  EXPECT(fd >= 0 && !is_readable(fd));
  offer_piece(call.round);
  offer_piece(call.round);
  EXPECT(take(0, &offer) == COW_FOUND_ITEM);
  post(0);
  cow_outlets_end(&call, COW_MLX_OK);
  EXPECT(is_readable(fd));
  cow_outlets_clear(call.context);
  EXPECT(!is_readable(fd));
  EXPECT(take(0, &offer) == COW_FOUND_NONE);
  EXPECT(told == 0);
  uint32_t round = cow_outlets_begin(call.context, 0, 0);
  EXPECT(round != 0);
  offer_piece(round);
  EXPECT(cow_outlets_taken(call.context, false) == 0);
}

/* A call may have begun the next generation before the dispatch thread forgets this one. */
static void clear_late(void) {
  cow_offer offer;
  begin();
  offer_piece(call.round);
  EXPECT(take(0, &offer) == COW_FOUND_ITEM);
  cow_outlets_end(&call, COW_MLX_OK);
  begin();
  cow_outlets_clear(call.context);
  EXPECT(cow_outlets_begin(call.context, call.round, 0) == call.round);
  EXPECT(cow_outlets_taken(call.context, false) == 0);
}

/* An event that finds no memory ends its call, which says so. */
static void memory(void) {
  cow_offer offer;
  begin();
  EXPECT(!cow_queue_was_woken());
  cow_event event = {.kind = COW_EVENT_CHAT,
                     .chat_kind = COW_MLX_EVENT_TEXT,
                     .text = strdup("text"),
                     .length = SIZE_MAX / 4};
  cow_outlets_post(&call, &event);
  EXPECT(cow_outlets_refused(&call) && cow_queue_was_woken());
  cow_outlets_end(&call, COW_MLX_ECANCELED); /* as the engine ends what was refused */
  EXPECT(take(0, &offer) == COW_FOUND_ITEM && offer.status == COW_MLX_ENOMEM);
  EXPECT(strcmp(offer.text, "call: there is too little memory for an event") == 0);
  EXPECT(strstr(offer.name, "\"no_memory\""));
  begin();
  cow_outlets_end(&call, COW_MLX_ECANCELED);
  EXPECT(take(0, &offer) == COW_FOUND_ITEM && offer.status == COW_MLX_ECANCELED);
}

/* Its sanitizers let an allocation fail. */
const char* __asan_default_options(void);
const char* __asan_default_options(void) { return "allocator_may_return_null=1"; }
const char* __tsan_default_options(void);
const char* __tsan_default_options(void) { return "allocator_may_return_null=1"; }

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } scenarios[] = {
      {"progress", progress}, {"clear", clear}, {"clear_late", clear_late}, {"memory", memory}};
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
    if (argc == 2 && strcmp(argv[1], scenarios[i].name) == 0) {
      scenarios[i].run();
      cow_outlets_close(call.context);
      return 0;
    }
  }
  fprintf(stderr, "usage: %s SCENARIO\n", argv[0]);
  return 2;
}
