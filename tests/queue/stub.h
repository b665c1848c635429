/* A dispatch thread without Python: it carries out what the token of a request
 * asks for. Its loop is that of csrc/boot/bootstrap.c. */
#ifndef STUB_H
#define STUB_H

#include "base/error.h"
#include "base/handles.h"
#include "queue/queue.h"

enum {
  STUB_FINISH,  /* end at once */
  STUB_FAIL,    /* end at once with EINVAL and a message that holds args.handle */
  STUB_PARK,    /* end after args.flags steps */
  STUB_EVENTS,  /* tell args.flags events, then end; a refusal ends it as cancelled */
  STUB_FOREVER, /* end when the context args.handle is cancelled, or at the stop */
  STUB_GATE     /* keep the dispatch thread busy until stub_open_gate() */
};

typedef struct stub_args {
  int32_t token; /* one of STUB_ */
  int32_t handle;
  uint32_t flags;
} stub_args;

void stub_start(void);

/* End by a request, as a stop does, or by closing from here, as an exit does. */
void stub_stop_by_request(void);
void stub_stop_by_closing(void);

/* Wait until a STUB_GATE request runs, and let it end. */
void stub_wait_at_gate(void);
void stub_open_gate(void);

/* How many requests wait to be taken, and how many are parked. */
int stub_queued(void);
int stub_parked(void);

/* How often the dispatch thread woke for more than requests. */
int stub_woken(void);

/* Bytes of an event's text. */
enum { STUB_TEXT = 16 };

/* The order in which STUB_FINISH requests were run: their args.handle. */
enum { STUB_HISTORY = 64 };
extern int32_t stub_history[STUB_HISTORY];
extern int stub_history_length;

#endif
