/* Vectors of 16 lanes: loops over n numbers, and functions of a number. The including file has
 * chosen an instruction set. */
#pragma once

#include "../matrix.h"

/* A table's entry: all that it calls is made part of it, so that the number of lanes, where it is
 * 16, is a constant, and full vectors need no masks. */
#define COWMLX_KERNEL static __attribute__((flatten))

namespace cowmlx::ISA {

COWMLX_INLINE F get(const float* p, int lanes) { return lanes == LANES ? load(p) : load(p, lanes); }

COWMLX_INLINE void put(float* p, F a, int lanes) {
  if (lanes == LANES)
    store(p, a);
  else
    store(p, a, lanes);
}

/* The first lanes of a; 0 in the rest. */
COWMLX_INLINE F only(F a, int lanes) {
  if (lanes == LANES) return a;
  float kept[LANES] = {};
  store(kept, a, lanes);
  return load(kept);
}

/* body(i, lanes) for every 16 of n numbers, and for the rest. */
template <class Body>
COWMLX_INLINE void each_vector(int n, Body body) {
  int i = 0;
  for (; i + LANES <= n; i += LANES) body(i, LANES);
  if (i < n) body(i, n - i);
}

/* e^x within 1 ulp or so: 2^n e^r with |r| <= ln 2 / 2, e^r by its Taylor polynomial of degree 7
 * (its remainder is 5e-9). Below the smallest subnormal 0, above the largest number infinity; a NaN
 * stays. */
COWMLX_INLINE F exp(F x) {
  x = min(set(89.0f), max(set(-104.0f), x));
#ifdef COWMLX_SCALES
  const F steps = nearest(x * set(0x1.715476p+0f));
#else
  const I n = round(x * set(0x1.715476p+0f));
  const F steps = convert(n);
#endif
  F r = fnma(steps, set(0x1.62e400p-1f), x);
  r = fnma(steps, set(0x1.7f7d1cp-20f), r);
  F p = set(1.0f / 5040);
  p = fma(p, r, set(1.0f / 720));
  p = fma(p, r, set(1.0f / 120));
  p = fma(p, r, set(1.0f / 24));
  p = fma(p, r, set(1.0f / 6));
  p = fma(p, r, set(0.5f));
  const F e = fma(p, r * r, r) + set(1.0f);
#ifdef COWMLX_SCALES
  return scaled(e, steps);
#else
  /* In two factors, since 2^n alone may be no normal number where the result is one. */
  const I half = shift_right<1>(n + set_word(256)) + set_word(0u - 128);
  const I rest = n + (half ^ set_word(0xffffffff)) + set_word(1);
  const F most = e * as_floats(shift_left<23>(half + set_word(127)));
  return most * as_floats(shift_left<23>(rest + set_word(127)));
#endif
}

COWMLX_INLINE F negative(F x) { return zero() - x; }

/* tanh x = 1 - 2 / (e^2x + 1); near 0, where digits cancel there, its series. */
COWMLX_INLINE F tanh(F x) {
  F s = x * x;
  F p = set(62.0f / 2835);
  p = fma(p, s, set(-17.0f / 315));
  p = fma(p, s, set(2.0f / 15));
  p = fma(p, s, set(-1.0f / 3));
  F near = fma(p * s, x, x);
  F far = set(1.0f) - set(2.0f) / (exp(x + x) + set(1.0f));
  return select_less(abs(x), set(0.3f), near, far);
}

/* x / (1 + e^-x) (arXiv 1702.03118) */
COWMLX_INLINE F silu(F x) { return x / (set(1.0f) + exp(negative(x))); }
COWMLX_INLINE F sigmoid(F x) { return set(1.0f) / (set(1.0f) + exp(negative(x))); }

/* The normal distribution function of x, where `power` is e^(-x²/2). For a >= 0 that function of -a
 * is e^(-a²/2) R(a); R is fitted, within 5e-8 of it, as a polynomial of t = 1 / (1 + a/4). So small
 * results of negative x keep their digits, where 1 + erf would lose them. */
COWMLX_INLINE F normal(F x, F power) {
  F a = abs(x);
  F t = set(1.0f) / fma(a, set(0.25f), set(1.0f));
  F p = set(2.007828580e-02f);
  p = fma(p, t, set(-8.209452035e-02f));
  p = fma(p, t, set(9.766368240e-02f));
  p = fma(p, t, set(-3.359270321e-02f));
  p = fma(p, t, set(6.468133073e-02f));
  p = fma(p, t, set(5.867577674e-02f));
  p = fma(p, t, set(8.165398902e-02f));
  p = fma(p, t, set(9.346201851e-02f));
  p = fma(p, t, set(9.973657921e-02f));
  p = fma(p, t, set(9.973556561e-02f));
  F below = p * t * power;
  return select_less(x, zero(), below, set(1.0f) - below);
}

COWMLX_INLINE F power_of(F x) { return exp(x * x * set(-0.5f)); }

/* x times the normal distribution function of x (arXiv 1606.08415). */
COWMLX_INLINE F gelu(F x) { return x * normal(x, power_of(x)); }

COWMLX_INLINE F gelu_slope(F x) {
  F power = power_of(x);
  return fma(x * power, set(0.3989422804014327f), normal(x, power));
}

/* Its approximation 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x³))), written with e^x. */
COWMLX_INLINE F gelu_tanh(F x) {
  F inner = fma(x * x * x, set(0.044715f), x);
  return x / (set(1.0f) + exp(inner * set(-1.5957691216057308f)));
}

}  // namespace cowmlx::ISA
