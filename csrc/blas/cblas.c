/*
 * Matrix products for libmlx from an optimised BLAS: libcowmlx_blas, Linux only.
 *
 * mlx's CPU build brings a reference BLAS, of which libmlx imports three functions. Loaded into
 * the global scope before libmlx, this library's own take their place (ELF symbol interposition),
 * and hand each call on to a BLAS whose names bear a prefix and that stays out of that scope.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, sched_setaffinity, environ */

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

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

/* The kernels' thread pool: its number of threads, and the function that runs chunks 0 to count - 1
 * on them. NULL until the kernels' module is loaded. */
typedef int (*threads_fn)(void);
typedef void (*parallel_fn)(int count, void (*chunk)(void* context, int index), void* context);
static _Atomic(threads_fn) threads;
static _Atomic(parallel_fn) parallel;

EXPORT void cow_blas_share(threads_fn count, parallel_fn run) {
  atomic_store(&parallel, run);
  atomic_store(&threads, count);
}

/* A product is cut into a part for each thread, along the longer side of its result. A part has
 * at least PART multiplications, which take about as long as waking a thread; OpenBLAS computes
 * smaller products by other loops. */
enum { BY_COLUMNS = 102, PLAIN = 111, PART = 1 << 20, UNIT = 64 };

struct parts {
  int count, size; /* of the side: a part's; the last may be smaller */
  bool of_rows;
};

static struct parts cut(int m, int n, int k) {
  struct parts parts = {.count = 1, .of_rows = m > n};
  const int side = parts.size = parts.of_rows ? m : n;
  const double work = (double)m * n * k / PART;
  const threads_fn count = work < 2 || side < 2 * UNIT ? NULL : atomic_load(&threads);
  int most = count ? count() : 1;
  if (most > work) most = (int)work;
  if (most > side / UNIT) most = side / UNIT;
  if (most < 2) return parts;
  parts.size = (side - 1) / most / UNIT * UNIT + UNIT;
  parts.count = (side + parts.size - 1) / parts.size;
  return parts;
}

/* How far into a matrix its row or column `at` lies. */
static size_t offset(bool row, bool by_columns, int at, int leading) {
  return (size_t)at * (row == by_columns ? 1 : (size_t)leading);
}

/* Everything but the scalars is passed in the same way for every type. */
#define FORWARD(letter, scalar, size_of)                                                         \
  typedef void (*letter##gemm_fn)(int, int, int, int, int, int, scalar, const void*, int,        \
                                  const void*, int, scalar, void*, int);                         \
  static letter##gemm_fn letter##gemm;                                                           \
  struct letter##product {                                                                       \
    struct parts parts;                                                                          \
    int order, trans_a, trans_b, m, n, k, lda, ldb, ldc;                                         \
    scalar alpha;                                                                                \
    scalar beta;                                                                                 \
    const char *a, *b;                                                                           \
    char* c;                                                                                     \
  };                                                                                             \
  static void letter##part(void* context, int index) {                                           \
    const struct letter##product* p = context;                                                   \
    const bool rows = p->parts.of_rows, by_columns = p->order == BY_COLUMNS;                     \
    const int at = index * p->parts.size, left = (rows ? p->m : p->n) - at;                      \
    const int side = left < p->parts.size ? left : p->parts.size;                                \
    const bool turned = (rows ? p->trans_a : p->trans_b) != PLAIN;                               \
    const size_t of_a = rows ? offset(!turned, by_columns, at, p->lda) * (size_of) : 0;          \
    const size_t of_b = rows ? 0 : offset(turned, by_columns, at, p->ldb) * (size_of);           \
    const size_t of_c = offset(rows, by_columns, at, p->ldc) * (size_of);                        \
    enter();                                                                                     \
    letter##gemm(p->order, p->trans_a, p->trans_b, rows ? side : p->m, rows ? p->n : side, p->k, \
                 p->alpha, p->a + of_a, p->lda, p->b + of_b, p->ldb, p->beta, p->c + of_c,       \
                 p->ldc);                                                                        \
    leave();                                                                                     \
  }                                                                                              \
  EXPORT void cblas_##letter##gemm(int order, int trans_a, int trans_b, int m, int n, int k,     \
                                   scalar alpha, const void* a, int lda, const void* b, int ldb, \
                                   scalar beta, void* c, int ldc) {                              \
    struct letter##product product = {cut(m, n, k), order, trans_a, trans_b, m, n, k, lda,       \
                                      ldb,          ldc,   alpha,   beta,    a, b, c};           \
    if (product.parts.count > 1) {                                                               \
      atomic_load (&parallel)(product.parts.count, letter##part, &product);                      \
    } else {                                                                                     \
      letter##part(&product, 0);                                                                 \
    }                                                                                            \
  }

FORWARD(s, float, sizeof(float))
FORWARD(d, double, sizeof(double))
FORWARD(c, const void*, 2 * sizeof(float))

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
  enum { ROWS = 101, TRANSPOSED = 112 };
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

/* Whether OpenBLAS 0.3.34 takes this processor for one without AVX-512: AMD's Zen 5 and later. Its
 * kernels for AVX2 reach half the speed there. */
static bool is_unknown(void) {
#ifdef __x86_64__
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  enum { LARGEST_BASE = 0xf, ZEN5 = 0x1a };
  __builtin_cpu_init();
  if (!__builtin_cpu_is("amd") || __get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((eax >> 8 & 0xf) != LARGEST_BASE || LARGEST_BASE + (eax >> 20 & 0xff) < ZEN5) return false;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

/* Load OpenBLAS with the kernels for this processor. A variable of the environment alone chooses
 * them. It is set in a copy of the list, since other threads may read the list meanwhile, and for
 * the same reason the copy is never freed. */
static void* open_for_processor(const char* path) {
  static char setting[] = "OPENBLAS_CORETYPE=SkylakeX";
  static char** more;
  char** const own = environ;
  size_t count = 0;
  if (own == NULL || more != NULL || !is_unknown() || getenv("OPENBLAS_CORETYPE"))
    return open_on_one(path);
  while (own[count]) count++;
  more = malloc((count + 2) * sizeof *more);
  if (!more) return open_on_one(path);
  memcpy(more, own, count * sizeof *more);
  more[count] = setting;
  more[count + 1] = NULL;
  environ = more;
  void* library = open_on_one(path);
  if (environ == more) environ = own;
  return library;
}

/* Hand products on to the library at `path` (OpenBLAS with the names of the scipy-openblas32
 * package), which uses no threads beside its callers'. NULL, or why that cannot be; then nothing
 * may call the functions above. */
EXPORT const char* cow_blas_open(const char* path) {
  void* library = open_for_processor(path);
  if (!library) return dlerror();
  *(void**)&sgemm = dlsym(library, "scipy_cblas_sgemm");
  *(void**)&dgemm = dlsym(library, "scipy_cblas_dgemm");
  *(void**)&cgemm = dlsym(library, "scipy_cblas_cgemm");
  void (*set_threads)(int) = NULL;
  *(void**)&set_threads = dlsym(library, "scipy_openblas_set_num_threads");
  if (!sgemm || !dgemm || !cgemm || !set_threads) return "it lacks scipy_cblas_sgemm and others";
  set_threads(1);
  /* The first buffer, so that no product ever waits for nothing. */
  if (!can_map_buffer()) return "there is no memory for its first buffer";
  if (!products_are_right()) return "its matrix products are wrong on this processor";
  products.buffers = 1;
  return NULL;
}
