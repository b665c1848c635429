/* A call that a worker makes for a process. When the process ends, so does the call. */
#ifndef COW_NIF_JOBS_H
#define COW_NIF_JOBS_H

#include "calls.h"

/* Read an answer into a room of count elements; false: it is none. */
typedef bool (*cow_answer_fn)(ErlNifEnv* env, ERL_NIF_TERM answer, void* room, size_t count);

typedef struct cow_job {
  cow_task task;
  const cow_call* call;
  ErlNifEnv* env;      /* of the arguments and the result */
  ErlNifEnv* messages; /* of messages before the result; made when it is needed */
  ErlNifPid owner;
  ErlNifMonitor monitor;
  cow_object* subject; /* the context or training that it runs on, or NULL; kept */
  ERL_NIF_TERM ref;
  int count;
  ERL_NIF_TERM arguments[8];
  atomic_bool abandoned; /* the owner has ended */
  ErlNifMutex* lock;     /* of what follows */
  ErlNifCond* answered;
  bool has_answer;
  bool is_refused;
  cow_answer_fn read; /* NULL: nothing is asked */
  void* room;
  size_t room_count;
} cow_job;

bool cow_jobs_open(ErlNifEnv* env);

/* The job that runs on this thread, or NULL. */
cow_job* cow_job_here(void);

/* Send {Ref, Message} to the owner: the message is made in job->messages, which this clears. */
void cow_job_send(cow_job* job, ERL_NIF_TERM message);

/* Send {Ref, Message}, and wait for answer(Job, Answer), which is read into the room. False if the
 * answer is nil, or the owner has ended. */
bool cow_job_ask(cow_job* job, ERL_NIF_TERM message, cow_answer_fn read, void* room, size_t count);

#endif
