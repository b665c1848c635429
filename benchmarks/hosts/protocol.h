/* Shared by the C programs of the benchmarks, with the library or without: clocks and lines. */
#ifndef BENCHMARK_PROTOCOL_H
#define BENCHMARK_PROTOCOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TOKENS = 32768, MAX_LINE = 1 << 19 };

static inline double seconds(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static inline double now(void) { return seconds(CLOCK_MONOTONIC); }

/* Of all threads of this process. */
static inline double processor_time(void) { return seconds(CLOCK_PROCESS_CPUTIME_ID); }

/* One line of a benchmark: KIND COUNT TOKEN... */
typedef struct task {
  char kind[16];
  size_t max_tokens;
  int32_t prompt[MAX_TOKENS];
  size_t count;
} task;

static inline bool read_task(task* out) {
  static char line[MAX_LINE];
  int used;
  if (!fgets(line, sizeof line, stdin)) return false;
  if (sscanf(line, "%15s %zu%n", out->kind, &out->max_tokens, &used) != 2) return false;
  char* rest = line + used;
  char* end;
  out->count = 0;
  for (long token; token = strtol(rest, &end, 10), end != rest; rest = end) {
    if (out->count == MAX_TOKENS) return false;
    out->prompt[out->count++] = (int32_t)token;
  }
  return out->max_tokens <= MAX_TOKENS;
}

/* Tell the parent that this host waits for lines. */
static inline void ready(void) {
  printf("ready\n");
  fflush(stdout);
}

/* Order of doubles for qsort. */
static inline int compare(const void* one, const void* other) {
  double a = *(const double*)one, b = *(const double*)other;
  return (a > b) - (a < b);
}

/* A point where threads wait for each other; macOS has no pthread_barrier_t. */
typedef struct gate {
  pthread_mutex_t lock;
  pthread_cond_t open;
  size_t missing;
} gate;

static inline void pass(gate* at) {
  pthread_mutex_lock(&at->lock);
  if (--at->missing == 0) pthread_cond_broadcast(&at->open);
  while (at->missing > 0) pthread_cond_wait(&at->open, &at->lock);
  pthread_mutex_unlock(&at->lock);
}

#endif
