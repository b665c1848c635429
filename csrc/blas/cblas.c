/*
 * Matrix products for libmlx from an optimised BLAS: libcowmlx_blas, Linux only.
 *
 * mlx's CPU build brings a reference BLAS, of which libmlx imports three functions. Loaded into
 * the global scope before libmlx, this library's own take their place (ELF symbol interposition),
 * and hand each call on to a BLAS whose names bear a prefix and that stays out of that scope.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, sched_setaffinity */

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define EXPORT __attribute__((visibility("default")))

/* OpenBLAS maps a buffer for each of the products that run at once, keeps it, and ends the process
 * where it cannot. When it maps is not seen from outside. So products take turns on one buffer
 * where the process' memory is limited, and wait for another's where no more can be mapped. */
enum { BUFFER_SIZE = 64 << 20 };

static struct {
  pthread_mutex_t lock;
  pthread_cond_t left;
  int buffers; /* that OpenBLAS has */
  int running;
} products = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = PTHREAD_COND_INITIALIZER};

static bool can_map_buffer(void) {
  void* memory =
      mmap(NULL, BUFFER_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, BUFFER_SIZE);
  return true;
}

static bool is_limited(void) {
  struct rlimit all, data;
  return getrlimit(RLIMIT_AS, &all) != 0 || all.rlim_cur != RLIM_INFINITY ||
         getrlimit(RLIMIT_DATA, &data) != 0 || data.rlim_cur != RLIM_INFINITY;
}

static void enter(void) {
  pthread_mutex_lock(&products.lock);
  while (products.running == products.buffers) {
    if (!is_limited() && can_map_buffer()) {
      products.buffers++;
    } else {
      pthread_cond_wait(&products.left, &products.lock);
    }
  }
  products.running++;
  pthread_mutex_unlock(&products.lock);
}

static void leave(void) {
  pthread_mutex_lock(&products.lock);
  products.running--;
  pthread_cond_signal(&products.left);
  pthread_mutex_unlock(&products.lock);
}

/* Everything but the scalars is passed in the same way for every type. */
#define FORWARD(letter, scalar)                                                                  \
  typedef void (*letter##gemm_fn)(int, int, int, int, int, int, scalar, const void*, int,        \
                                  const void*, int, scalar, void*, int);                         \
  static letter##gemm_fn letter##gemm;                                                           \
  EXPORT void cblas_##letter##gemm(int order, int trans_a, int trans_b, int m, int n, int k,     \
                                   scalar alpha, const void* a, int lda, const void* b, int ldb, \
                                   scalar beta, void* c, int ldc) {                              \
    enter();                                                                                     \
    letter##gemm(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);         \
    leave();                                                                                     \
  }

FORWARD(s, float)
FORWARD(d, double)
FORWARD(c, const void*)

/* Load a library on one processor: OpenBLAS starts a thread for each that it sees, which spins for
 * a tenth of a second before it first sleeps, beside whatever starts then. The rest comes with the
 * first call of set_num_threads that asks for more. */
static void* open_on_one(const char* path) {
  cpu_set_t allowed, one;
  int here = sched_getcpu();
  bool bound = here >= 0 && here < CPU_SETSIZE &&
               sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_ISSET(here, &allowed);
  CPU_ZERO(&one);
  if (bound) CPU_SET(here, &one);
  bound = bound && sched_setaffinity(0, sizeof one, &one) == 0;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (bound) sched_setaffinity(0, sizeof allowed, &allowed);
  return library;
}

/* Whether two products of whole numbers, which floats hold exactly, equal that of a plain loop.
 * OpenBLAS chooses its loops by the processor; some are wrong without an error where that is
 * emulated. The second matrix is symmetric: its transpose, which mlx asks for, has that product. */
static bool products_are_right(void) {
  enum { ROWS = 101, PLAIN = 111, TRANSPOSED = 112 };
  enum { SIDE = 160, SIZE = SIDE * SIDE }; /* smaller ones may take no buffer */
  static float a[SIZE], b[SIZE], plain[SIZE], transposed[SIZE];
  for (int i = 0; i < SIZE; i++) {
    int row = i / SIDE, column = i % SIDE;
    a[i] = (float)((31 * row + 17 * column) % 11 - 5);
    b[i] = (float)((row * column + row + column) % 13 - 6);
    plain[i] = transposed[i] = NAN; /* not read, only written */
  }
  sgemm(ROWS, PLAIN, PLAIN, SIDE, SIDE, SIDE, 1, a, SIDE, b, SIDE, 0, plain, SIDE);
  sgemm(ROWS, PLAIN, TRANSPOSED, SIDE, SIDE, SIDE, 1, a, SIDE, b, SIDE, 0, transposed, SIDE);
  for (int i = 0; i < SIZE; i += SIDE) {
    float sums[SIDE] = {0};
    for (int k = 0; k < SIDE; k++) {
      for (int j = 0; j < SIDE; j++) sums[j] += a[i + k] * b[k * SIDE + j];
    }
    for (int j = 0; j < SIDE; j++) {
      if (plain[i + j] != sums[j] || transposed[i + j] != sums[j]) return false;
    }
  }
  return true;
}

/* Hand products on to the library at `path` (OpenBLAS with the names of the scipy-openblas32
 * package), which uses so many threads. NULL, or why that cannot be; then nothing may call the
 * functions above. */
EXPORT const char* cow_blas_open(const char* path, int threads) {
  void* library = open_on_one(path);
  if (!library) return dlerror();
  *(void**)&sgemm = dlsym(library, "scipy_cblas_sgemm");
  *(void**)&dgemm = dlsym(library, "scipy_cblas_dgemm");
  *(void**)&cgemm = dlsym(library, "scipy_cblas_cgemm");
  void (*set_threads)(int) = NULL;
  *(void**)&set_threads = dlsym(library, "scipy_openblas_set_num_threads");
  if (!sgemm || !dgemm || !cgemm || !set_threads) return "it lacks scipy_cblas_sgemm and others";
  set_threads(threads);
  /* The first buffer, so that no product ever waits for nothing. */
  if (!can_map_buffer()) return "there is no memory for its first buffer";
  if (!products_are_right()) return "its matrix products are wrong on this processor";
  products.buffers = 1;
  return NULL;
}
