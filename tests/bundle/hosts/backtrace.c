/*
 * Multiplies matrices with an OpenBLAS until a signal has come in a product a few times, and prints
 * how often that was and how deep the backtraces that its handler took were at most.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

enum { SIZE = 300, DEPTH = 64, WANTED = 5, ROW_MAJOR = 101, AS_IT_IS = 111 };

typedef void (*sgemm)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                      const float* a, int lda, const float* b, int ldb, float beta, float* c,
                      int ldc);

static volatile sig_atomic_t taken, deepest;

static void take(int signal_number) {
  void* frames[DEPTH];
  int depth = backtrace(frames, DEPTH);
  (void)signal_number;
  taken++;
  if (depth > deepest) deepest = depth;
}

int main(int argc, char** argv) {
  void* first[1];
  backtrace(first, 1); /* loads libgcc_s, which a handler may not */
  void* library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
  sgemm multiply = NULL;
  if (library != NULL) *(void**)&multiply = dlsym(library, "scipy_cblas_sgemm");
  float* matrices = calloc(3, sizeof(float[SIZE][SIZE]));
  if (multiply == NULL || matrices == NULL) {
    fprintf(stderr, "no products: %s\n", library ? "no memory or symbol" : dlerror());
    return 1;
  }
  struct itimerval often = {{0, 1000}, {0, 1000}};
  signal(SIGPROF, take);
  setitimer(ITIMER_PROF, &often, NULL);
  while (taken < WANTED) {
    float *a = matrices, *b = a + SIZE * SIZE, *c = b + SIZE * SIZE;
    multiply(ROW_MAJOR, AS_IT_IS, AS_IT_IS, SIZE, SIZE, SIZE, 1, a, SIZE, b, SIZE, 0, c, SIZE);
  }
  setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL);
  printf("%d %d\n", (int)taken, (int)deepest);
  free(matrices);
  return 0;
}
