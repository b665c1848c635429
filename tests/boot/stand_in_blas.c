/* A BLAS with the names of scipy-openblas32: plain loops, and one fault if FAULT names it. */
enum { RIGHT, ONE_NUMBER, NOT_TRANSPOSED, NOT_A_NUMBER, READS_THE_RESULT };

enum { TRANSPOSED = 112 };

void scipy_openblas_set_num_threads(int threads) { (void)threads; }
void scipy_cblas_dgemm(void) {}
void scipy_cblas_cgemm(void) {}

void scipy_cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                       const float* a, int lda, const float* b, int ldb, float beta, float* c,
                       int ldc) {
  (void)order, (void)trans_a;
  int by_columns = trans_b == TRANSPOSED;
  for (int i = 0; i < m; i++) {
    for (int j = 0; j < n; j++) {
      float sum = 0;
      for (int p = 0; p < k; p++) sum += a[i * lda + p] * b[by_columns ? j * ldb + p : p * ldb + j];
      if (FAULT == ONE_NUMBER && i == m - 1 && j == n / 2) sum += 1;
      if (FAULT == NOT_TRANSPOSED && by_columns && i == 0) sum = 0;
      if (FAULT == NOT_A_NUMBER && i == 0 && j == 0) sum = 0.0f / 0.0f;
      float before = FAULT == READS_THE_RESULT || beta != 0 ? beta * c[i * ldc + j] : 0;
      c[i * ldc + j] = alpha * sum + before;
    }
  }
}
