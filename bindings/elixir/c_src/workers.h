/* Threads for calls that wait: no scheduler of the node ever does. */
#ifndef COW_NIF_WORKERS_H
#define COW_NIF_WORKERS_H

#include <stdbool.h>

/* Work; who adds it owns its memory until run() begins. */
typedef struct cow_task {
  struct cow_task* next;
  void (*run)(struct cow_task* task);
} cow_task;

/* Run a task on one of at most 64 threads, which end after some seconds without work. False if none
 * runs and none can be started: nothing happens. */
bool cow_workers_add(cow_task* task);

/* The same for work that must not be lost: without a thread it waits for the next task. */
void cow_workers_leave(cow_task* task);

/* Run a task that may take hours on a separate thread; false if none can be started. */
bool cow_workers_start(cow_task* task);

#endif
