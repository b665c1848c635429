/*
 * Calls through the queue, and the same exchange between threads without a library:
 * round_trip BLOCKS SECONDS MODEL
 *
 * For 1, 4 and 16 clients, blocks of both take turns. Prints a line per block:
 * CLIENTS SIDE MEDIAN P99 RATE (microseconds; calls per second of all clients).
 */
#include <pthread.h>

#include "host.h"

enum { MAX_CLIENTS = 16, MAX_CALLS = 1 << 18 };

/* ------------------------- The bare exchange: a mutex, and one condition variable
 * for the server and one for every waiting client, as in the library's queue. */

typedef struct message {
  struct message* next;
  pthread_cond_t answered;
  bool done;
} message;

static struct {
  pthread_mutex_t lock;
  pthread_cond_t work;
  message* first;
  message* last;
} bare = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

static void bare_call(void) {
  message sent = {.answered = PTHREAD_COND_INITIALIZER};
  pthread_mutex_lock(&bare.lock);
  if (bare.last) {
    bare.last->next = &sent;
  } else {
    bare.first = &sent;
  }
  bare.last = &sent;
  pthread_cond_signal(&bare.work);
  while (!sent.done) pthread_cond_wait(&sent.answered, &bare.lock);
  pthread_mutex_unlock(&bare.lock);
  pthread_cond_destroy(&sent.answered);
}

static void* bare_server(void* unused) {
  (void)unused;
  pthread_mutex_lock(&bare.lock);
  for (;;) {
    while (!bare.first) pthread_cond_wait(&bare.work, &bare.lock);
    message* received = bare.first;
    bare.first = received->next;
    if (!bare.first) bare.last = NULL;
    pthread_mutex_unlock(&bare.lock); /* where the library does the work */
    pthread_mutex_lock(&bare.lock);
    received->done = true;
    pthread_cond_signal(&received->answered);
  }
  return NULL;
}

static cow_mlx_model model;

static void library_call(void) {
  bool is_end;
  check(cow_mlx_model_is_end(model, 0, &is_end));
}

/* ---------------------------------------------------------------- Measuring */

typedef struct client {
  pthread_t thread;
  void (*call)(void);
  double until;
  float* times; /* seconds of each call */
  size_t count;
} client;

static void* run_client(void* data) {
  client* self = data;
  double begun = now();
  self->count = 0;
  while (begun < self->until && self->count < MAX_CALLS) {
    self->call();
    double ended = now();
    self->times[self->count++] = (float)(ended - begun);
    begun = ended;
  }
  return NULL;
}

static void block(client* clients, int count, const char* side, void (*call)(void),
                  double seconds) {
  static float times[MAX_CLIENTS * MAX_CALLS];
  size_t total = 0;
  double begun = now();
  for (int i = 0; i < count; i++) {
    clients[i].call = call;
    clients[i].until = begun + seconds;
    if (pthread_create(&clients[i].thread, NULL, run_client, &clients[i])) exit(1);
  }
  for (int i = 0; i < count; i++) {
    pthread_join(clients[i].thread, NULL);
    memcpy(times + total, clients[i].times, clients[i].count * sizeof *times);
    total += clients[i].count;
  }
  double elapsed = now() - begun;
  qsort(times, total, sizeof *times, compare);
  printf("%d %s %.3f %.3f %.0f\n", count, side, 1e6 * times[total / 2],
         1e6 * times[total * 99 / 100], (double)total / elapsed);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  int blocks = atoi(argv[1]);
  double seconds = atof(argv[2]);
  static const int counts[] = {1, 4, 16};
  static client clients[MAX_CLIENTS];
  for (int i = 0; i < MAX_CLIENTS; i++) clients[i].times = malloc(MAX_CALLS * sizeof(float));
  pthread_t server;
  if (pthread_create(&server, NULL, bare_server, NULL)) return 1;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_model_load(argv[3], NULL, &model));
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    for (int b = 0; b < blocks; b++) {
      block(clients, counts[i], "library", library_call, seconds);
      block(clients, counts[i], "bare", bare_call, seconds);
    }
  }
  return 0;
}
