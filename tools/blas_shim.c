/* Lends libmlx the matrix products of OpenBLAS.
 *
 * The CPU build of mlx links a reference BLAS, from which it imports three symbols.  Loaded into
 * the global scope before libmlx, this library provides those symbols and hands each call on to
 * the OpenBLAS of the scipy-openblas32 wheel, whose names bear a prefix.
 */

#define FORWARD(letter, scalar)                                                                   \
    void scipy_cblas_##letter##gemm(int, int, int, int, int, int, scalar, const void *, int,      \
                                    const void *, int, scalar, void *, int);                      \
    void cblas_##letter##gemm(int order, int trans_a, int trans_b, int m, int n, int k,           \
                              scalar alpha, const void *a, int lda, const void *b, int ldb,       \
                              scalar beta, void *c, int ldc)                                      \
    {                                                                                             \
        scipy_cblas_##letter##gemm(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, \
                                   c, ldc);                                                       \
    }

FORWARD(s, float)
FORWARD(d, double)
FORWARD(c, const void *)
