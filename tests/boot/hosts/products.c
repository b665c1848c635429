/* Eight matrix products at once, and addresses for up to three of OpenBLAS's buffers. argv: the
 * library that lends libmlx its BLAS, OpenBLAS, and the MiB that are left. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { THREADS = 8, SIDE = 400, TIMES = 20, ROWS = 101, PLAIN = 111 };

static void (*sgemm)(int, int, int, int, int, int, float, const void*, int, const void*, int, float,
                     void*, int);

static void* multiply(void* data) {
  float *a = data, *b = a + SIDE * SIDE, *c = b + SIDE * SIDE;
  for (int i = 0; i < TIMES; i++) {
    sgemm(ROWS, PLAIN, PLAIN, SIDE, SIDE, SIDE, 1, a, SIDE, b, SIDE, 0, c, SIDE);
  }
  return c[0] == SIDE ? data : NULL;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) return 3;
  const char* (*open_blas)(const char*);
  *(void**)&open_blas = dlsym(library, "cow_blas_open");
  *(void**)&sgemm = dlsym(library, "cblas_sgemm");
  const char* problem = open_blas(argv[2]);
  if (problem) return puts(problem), 4;

  float* data[THREADS];
  for (int i = 0; i < THREADS; i++) {
    data[i] = malloc(3 * SIDE * SIDE * sizeof(float));
    for (int j = 0; j < 3 * SIDE * SIDE; j++) data[i][j] = 1;
  }
  unsigned long long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%llu", &pages) != 1) return 5;
  fclose(file);
  struct rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)atol(argv[3]) << 20);
  setrlimit(RLIMIT_AS, &limit);

  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 1 << 20);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    if (pthread_create(&threads[i], &attributes, multiply, data[i])) return 6;
  }
  for (int i = 0; i < THREADS; i++) {
    void* right = NULL;
    pthread_join(threads[i], &right);
    if (!right) return 7;
  }
  return 0;
}
