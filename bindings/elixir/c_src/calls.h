/* The calls by their names, and how they are made: on this thread, or on a worker that sends the
 * result to the caller. */
#ifndef COW_NIF_CALLS_H
#define COW_NIF_CALLS_H

#include "frame.h"

typedef enum cow_way {
  COW_WAITS = 0,  /* on a worker */
  COW_DIRECT = 1, /* may be made on a scheduler: it never waits */
  COW_ALONE = 2,  /* on a separate thread: it may take hours, or ask its owner */
  COW_READS = 3   /* on a worker, also while another call runs, which it does not cancel */
} cow_way;

typedef struct cow_call {
  const char* name;
  int arity;
  cow_way way;
  ERL_NIF_TERM (*make)(cow_frame* frame);
} cow_call;

/* Generated from the header. */
extern const cow_call cow_generated_calls[];
extern const size_t cow_generated_count;

/* call(Ref, Name, Arguments): ok, and later {Ref, Result}; or a problem. */
ERL_NIF_TERM cow_nif_call(ErlNifEnv* env, int count, const ERL_NIF_TERM arguments[]);

/* direct(Name, Arguments): the result. */
ERL_NIF_TERM cow_nif_direct(ErlNifEnv* env, int count, const ERL_NIF_TERM arguments[]);

/* calls(): [{Name, Arity, Way}] */
ERL_NIF_TERM cow_nif_calls(ErlNifEnv* env, int count, const ERL_NIF_TERM arguments[]);

/* answer(Job, Answer | nil): ok, for a call that waits for a batch or for logits. */
ERL_NIF_TERM cow_nif_answer(ErlNifEnv* env, int count, const ERL_NIF_TERM arguments[]);

#endif
