/* Functions of a number, over 16 lanes. The including file has chosen an instruction set. */
#pragma once

namespace cowmlx::ISA {

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

/* x times the normal distribution function of x (arXiv 1606.08415). For a >= 0 that function of -a
 * is e^(-a²/2) R(a); R is fitted, within 5e-8 of it, as a polynomial of t = 1 / (1 + a/4). So small
 * results of negative x keep their digits, where 1 + erf would lose them. */
COWMLX_INLINE F gelu(F x) {
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
  F below = p * t * exp(a * a * set(-0.5f));
  return x * select_less(x, zero(), below, set(1.0f) - below);
}

/* Its approximation 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x³))), written with e^x. */
COWMLX_INLINE F gelu_tanh(F x) {
  F inner = fma(x * x * x, set(0.044715f), x);
  return x / (set(1.0f) + exp(inner * set(-1.5957691216057308f)));
}

}  // namespace cowmlx::ISA
