/*
 * LAPACK for libmlx from OpenBLAS: libcowmlx_lapack, Linux only, in bundles only.
 *
 * mlx's CPU build brings a reference LAPACK of 11 MB, Fortran's run-time libraries included, and
 * OpenBLAS brings another. A bundle that has OpenBLAS holds this library in the place of the first:
 * libmlx finds its functions here, under their plain names, and each hands its call on. Linked
 * against OpenBLAS, not loaded by name, so that whatever opens libmlx gets both.
 *
 * The functions are those that libmlx imports; `python -m cowmlx bundle` compares the two.
 */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

/* Fortran passes everything by reference. Behind the arguments come the lengths of those that are
 * text; callees may use their stack slots as their own. */
#define TAKE_5 void *a, void *b, void *c, void *d, void *e
#define TAKE_6 TAKE_5, void* f
#define TAKE_7 TAKE_6, void* g
#define TAKE_8 TAKE_7, void* h
#define TAKE_9 TAKE_8, void* i
#define TAKE_11 TAKE_9, void *j, void *k
#define TAKE_13 TAKE_11, void *l, void *m
#define TAKE_14 TAKE_13, void* n
#define TAKE_15 TAKE_14, void* o

#define GIVE_5 a, b, c, d, e
#define GIVE_6 GIVE_5, f
#define GIVE_7 GIVE_6, g
#define GIVE_8 GIVE_7, h
#define GIVE_9 GIVE_8, i
#define GIVE_11 GIVE_9, j, k
#define GIVE_13 GIVE_11, l, m
#define GIVE_14 GIVE_13, n
#define GIVE_15 GIVE_14, o

#define FORWARD(name, count)                                           \
  extern void scipy_##name(TAKE_##count, size_t first, size_t second); \
  EXPORT void name(TAKE_##count) { scipy_##name(GIVE_##count, 1, 1); }

/* LU, its inverse, and the inverse of a triangle */
FORWARD(sgetrf_, 6)
FORWARD(dgetrf_, 6)
FORWARD(sgetri_, 7)
FORWARD(dgetri_, 7)
FORWARD(strtri_, 6)
FORWARD(dtrtri_, 6)

/* Cholesky */
FORWARD(spotrf_, 5)
FORWARD(dpotrf_, 5)

/* QR */
FORWARD(sgeqrf_, 8)
FORWARD(dgeqrf_, 8)
FORWARD(sorgqr_, 9)
FORWARD(dorgqr_, 9)

/* Singular values */
FORWARD(sgesdd_, 14)
FORWARD(dgesdd_, 14)
FORWARD(cgesdd_, 15)

/* Eigenvalues */
FORWARD(ssyevd_, 11)
FORWARD(dsyevd_, 11)
FORWARD(cheevd_, 13)
FORWARD(sgeev_, 14)
FORWARD(dgeev_, 14)
FORWARD(cgeev_, 14)
