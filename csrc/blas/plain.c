/*
 * The three matrix products that libmlx imports, as plain loops: libcowmlx_plain, Linux only, in
 * bundles only.
 *
 * A bundle that has OpenBLAS holds this library in the place of mlx's reference BLAS, which is
 * forty times as large. It computes where OpenBLAS is not lent: COWMLX_BLAS=reference, or a host
 * that had loaded mlx before. `python -m cowmlx bundle` compares what libmlx imports with this.
 */
#include <complex.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

/* As the standard of CBLAS numbers them. */
enum { BY_COLUMNS = 102, PLAIN = 111, CONJUGATE = 113 };

static float same_float(float x) { return x; }
static double same_double(double x) { return x; }

/* c = alpha * op(a) op(b) + beta * c, with m rows, n columns and k numbers to a sum. Matrices by
 * columns are the transposes of the same memory by rows, so b's and a's places are exchanged. */
#define GEMM(name, type, scalar, value, conjugate)                                              \
  EXPORT void name(int order, int trans_a, int trans_b, int m, int n, int k, scalar alpha,      \
                   const void* a, int lda, const void* b, int ldb, scalar beta, void* c,        \
                   int ldc) {                                                                   \
    if (order == BY_COLUMNS) {                                                                  \
      name(0, trans_b, trans_a, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc);                  \
      return;                                                                                   \
    }                                                                                           \
    const ptrdiff_t row_a = trans_a == PLAIN ? lda : 1, step_a = trans_a == PLAIN ? 1 : lda;    \
    const ptrdiff_t column_b = trans_b == PLAIN ? 1 : ldb, step_b = trans_b == PLAIN ? ldb : 1; \
    for (ptrdiff_t i = 0; i < m; i++) {                                                         \
      for (ptrdiff_t j = 0; j < n; j++) {                                                       \
        const type* x = (const type*)a + i * row_a;                                             \
        const type* y = (const type*)b + j * column_b;                                          \
        type sum = 0;                                                                           \
        for (ptrdiff_t p = 0; p < k; p++) {                                                     \
          const type left = x[p * step_a], right = y[p * step_b];                               \
          sum += (trans_a == CONJUGATE ? conjugate(left) : left) *                              \
                 (trans_b == CONJUGATE ? conjugate(right) : right);                             \
        }                                                                                       \
        type* out = (type*)c + i * ldc + j;                                                     \
        *out = value(alpha) * sum + (value(beta) == 0 ? 0 : value(beta) * *out);                \
      }                                                                                         \
    }                                                                                           \
  }

#define ITSELF(x) (x)
#define POINTED(x) (*(const float complex*)(x))

GEMM(cblas_sgemm, float, float, ITSELF, same_float)
GEMM(cblas_dgemm, double, double, ITSELF, same_double)
GEMM(cblas_cgemm, float complex, const void*, POINTED, conjf)
