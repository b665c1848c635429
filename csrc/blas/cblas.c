/*
 * Matrix products for libmlx from an optimised BLAS: libcowmlx_blas, Linux only.
 *
 * mlx's CPU build brings a reference BLAS, of which libmlx imports three functions. Loaded into
 * the global scope before libmlx, this library's own take their place (ELF symbol interposition),
 * and hand each call on to a BLAS whose names bear a prefix and that stays out of that scope.
 */
#include <dlfcn.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

/* Everything but the scalars is passed in the same way for every type. */
#define FORWARD(letter, scalar)                                                                  \
  typedef void (*letter##gemm_fn)(int, int, int, int, int, int, scalar, const void*, int,        \
                                  const void*, int, scalar, void*, int);                         \
  static letter##gemm_fn letter##gemm;                                                           \
  EXPORT void cblas_##letter##gemm(int order, int trans_a, int trans_b, int m, int n, int k,     \
                                   scalar alpha, const void* a, int lda, const void* b, int ldb, \
                                   scalar beta, void* c, int ldc) {                              \
    letter##gemm(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);         \
  }

FORWARD(s, float)
FORWARD(d, double)
FORWARD(c, const void*)

/* Hand products on to the library at `path` (OpenBLAS with the names of the scipy-openblas32
 * package), which uses so many threads. NULL, or why that cannot be; then nothing may call the
 * functions above. */
EXPORT const char* cow_blas_open(const char* path, int threads) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return dlerror();
  *(void**)&sgemm = dlsym(library, "scipy_cblas_sgemm");
  *(void**)&dgemm = dlsym(library, "scipy_cblas_dgemm");
  *(void**)&cgemm = dlsym(library, "scipy_cblas_cgemm");
  void (*set_threads)(int) = NULL;
  *(void**)&set_threads = dlsym(library, "scipy_openblas_set_num_threads");
  if (!sgemm || !dgemm || !cgemm || !set_threads) return "it lacks scipy_cblas_sgemm and others";
  set_threads(threads);
  return NULL;
}
