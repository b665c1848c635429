/*
 * What the processors can do at most: roofline KIND THREADS BYTES
 *
 * Prints a rate per second, the best of several tries, all threads together. KIND "read" gives
 * bytes that are read over and over, a part by each thread, BYTES in all; "float32" and "int8" give
 * multiply-adds in registers, 0 where this program knows no instruction for them. To be compiled
 * for the machine at hand.
 */
#include "../protocol.h"
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

/* Chains take all registers but those of what is multiplied. */
#if defined(__AVX512F__)
enum { BYTES = 64, CHAINS = 16 };
#elif defined(__AVX2__)
enum { BYTES = 32, CHAINS = 12 };
#else
enum { BYTES = 16, CHAINS = 16 };
#endif
enum { MAX_THREADS = 64, TRIES = 10, FLOATS = BYTES / sizeof(float) };
static const double TRY_SECONDS = 0.1;

typedef uint32_t words __attribute__((vector_size(BYTES)));
typedef float floats __attribute__((vector_size(BYTES)));

typedef struct worker {
  pthread_t thread;
  words* data;
  size_t bytes;
  double (*work)(struct worker*);
  double begun;
  double ended;
  double done;
  volatile uint32_t sink; /* so that nothing is left out */
} worker;

static gate start = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

/* Sums the part once; the number of bytes. */
static double read_all(worker* self) {
  words sums[8] = {{0}};
  size_t count = self->bytes / sizeof(words);
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (size_t j = 0; j < 8; j++) sums[j] += self->data[i + j];
  }
  for (size_t j = 1; j < 8; j++) sums[0] += sums[j];
  self->sink = sums[0][0];
  return (double)self->bytes;
}

static double multiply_floats(worker* self) {
  /* Chains that differ, or the compiler would keep one. */
  floats sums[CHAINS] = {{0}};
  for (size_t j = 0; j < CHAINS; j++) sums[j] += (float)j;
  floats factor;
  for (size_t i = 0; i < FLOATS; i++) factor[i] = (float)self->sink;
  floats term = factor + 0.5f;
  enum { ROUNDS = 100000 };
  for (size_t round = 0; round < ROUNDS; round++) {
    for (size_t j = 0; j < CHAINS; j++) sums[j] = sums[j] * factor + term;
  }
  for (size_t j = 1; j < CHAINS; j++) sums[0] += sums[j];
  self->sink = (uint32_t)sums[0][0] & 1;
  return (double)ROUNDS * CHAINS * FLOATS;
}

static double multiply_bytes(worker* self) {
#if defined(__AVX512VNNI__)
  enum { ROUNDS = 100000, WIDTH = 64 };
  __m512i sums[CHAINS];
  for (int j = 0; j < CHAINS; j++) sums[j] = _mm512_set1_epi32(j);
  __m512i factor = _mm512_set1_epi8((char)self->sink);
  for (size_t round = 0; round < ROUNDS; round++) {
    for (size_t j = 0; j < CHAINS; j++) sums[j] = _mm512_dpbusd_epi32(sums[j], factor, factor);
  }
  for (size_t j = 1; j < CHAINS; j++) sums[0] = _mm512_add_epi32(sums[0], sums[j]);
  self->sink = (uint32_t)_mm512_reduce_add_epi32(sums[0]) & 1;
  return (double)ROUNDS * CHAINS * WIDTH;
#elif defined(__AVX2__)
  /* Sums of 16 bits, as of weights of 4 bits. */
  enum { ROUNDS = 100000 };
  __m256i sums[CHAINS];
  for (int j = 0; j < CHAINS; j++) sums[j] = _mm256_set1_epi16((short)j);
  __m256i factor = _mm256_set1_epi8((char)self->sink);
  for (size_t round = 0; round < ROUNDS; round++) {
    for (size_t j = 0; j < CHAINS; j++) {
      __asm__ volatile("" : "+x"(factor)); /* or the compiler would keep one product */
      sums[j] = _mm256_add_epi16(sums[j], _mm256_maddubs_epi16(factor, factor));
    }
  }
  for (size_t j = 1; j < CHAINS; j++) sums[0] = _mm256_add_epi16(sums[0], sums[j]);
  self->sink = (uint32_t)_mm256_extract_epi16(sums[0], 0) & 1;
  return (double)ROUNDS * CHAINS * BYTES;
#elif defined(__ARM_FEATURE_DOTPROD)
  enum { ROUNDS = 100000, WIDTH = 16 };
  int32x4_t sums[CHAINS];
  for (int j = 0; j < CHAINS; j++) sums[j] = vdupq_n_s32(j);
  int8x16_t factor = vdupq_n_s8((int8_t)self->sink);
  for (size_t round = 0; round < ROUNDS; round++) {
    for (size_t j = 0; j < CHAINS; j++) sums[j] = vdotq_s32(sums[j], factor, factor);
  }
  for (size_t j = 1; j < CHAINS; j++) sums[0] = vaddq_s32(sums[0], sums[j]);
  self->sink = (uint32_t)vaddvq_s32(sums[0]) & 1;
  return (double)ROUNDS * CHAINS * WIDTH;
#else
  (void)self;
  return 0;
#endif
}

static void* run(void* data) {
  worker* self = data;
  self->work(self);
  pass(&start);
  self->begun = now();
  self->done = 0;
  do {
    self->done += self->work(self);
    self->ended = now();
  } while (self->ended < self->begun + TRY_SECONDS);
  return NULL;
}

static double measure(worker* workers, size_t threads) {
  double begun = 0;
  double ended = 0;
  double done = 0;
  start.missing = threads;
  for (size_t i = 0; i < threads; i++) {
    if (pthread_create(&workers[i].thread, NULL, run, &workers[i])) exit(1);
  }
  for (size_t i = 0; i < threads; i++) {
    pthread_join(workers[i].thread, NULL);
    if (i == 0 || workers[i].begun < begun) begun = workers[i].begun;
    if (i == 0 || workers[i].ended > ended) ended = workers[i].ended;
    done += workers[i].done;
  }
  return done / (ended - begun);
}

int main(int argc, char** argv) {
  static worker workers[MAX_THREADS];
  if (argc != 4) return 2;
  size_t threads = strtoul(argv[2], NULL, 10);
  size_t bytes = strtoul(argv[3], NULL, 10);
  bool reading = strcmp(argv[1], "read") == 0;
  bool whole = strcmp(argv[1], "int8") == 0;
  if (!reading && !whole && strcmp(argv[1], "float32") != 0) return 2;
  if (threads < 1 || threads > MAX_THREADS) return 2;
  /* Parts of whole lines, each read eight vectors at a time. */
  size_t unit = 8 * sizeof(words);
  size_t part = (bytes / threads / unit + 1) * unit;
  for (size_t i = 0; i < threads; i++) {
    workers[i].work = reading ? read_all : whole ? multiply_bytes : multiply_floats;
    workers[i].bytes = part;
    if (!reading) continue;
    if (posix_memalign((void**)&workers[i].data, sizeof(words), part)) return 1;
    memset(workers[i].data, 1, part);
  }
  double best = 0;
  for (size_t i = 0; i < TRIES; i++) {
    double rate = measure(workers, threads);
    if (rate > best) best = rate;
  }
  for (size_t i = 0; i < threads; i++) free(workers[i].data);
  printf("%.0f\n", best);
  return 0;
}
