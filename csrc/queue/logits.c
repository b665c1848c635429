#include "queue/logits.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct shared {
  cow_logits logits; /* its buffers follow */
  atomic_int users;
  atomic_int answer;
} shared;

static shared* shared_of(const cow_logits* logits) { return (shared*)logits; }

cow_logits* cow_logits_new(cow_mlx_logits_fn function, void* data, size_t count,
                           size_t vocabulary) {
  if (count > SIZE_MAX / 8 || vocabulary > SIZE_MAX / 16) return NULL;
  size_t values = vocabulary * sizeof(float);
  shared* made = malloc(sizeof(shared) + values + (count + 1) * sizeof(int32_t));
  if (!made) return NULL;
  float* room = (float*)(made + 1);
  made->logits = (cow_logits){.function = function,
                              .data = data,
                              .count = count,
                              .vocabulary = vocabulary,
                              .values = room,
                              .tokens = (int32_t*)(room + vocabulary)};
  atomic_init(&made->users, 1);
  atomic_init(&made->answer, 0);
  return &made->logits;
}

void cow_logits_share(cow_logits* logits) { atomic_fetch_add(&shared_of(logits)->users, 1); }

void cow_logits_let_go(cow_logits* logits) {
  if (logits && atomic_fetch_sub(&shared_of(logits)->users, 1) == 1) free(shared_of(logits));
}

bool cow_logits_ask(cow_logits* logits) {
  bool goes_on = logits->function(logits->tokens, logits->count, logits->values, logits->vocabulary,
                                  logits->data);
  atomic_store(&shared_of(logits)->answer, goes_on ? 1 : -1);
  cow_logits_let_go(logits);
  return goes_on;
}

int cow_logits_answer(const cow_logits* logits) { return atomic_load(&shared_of(logits)->answer); }
