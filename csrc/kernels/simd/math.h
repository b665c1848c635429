/* Functions over 16 lanes that every instruction set shares. The including file has chosen one. */
#pragma once

namespace cowmlx::ISA {

/* e^x within 1 ulp or so: 2^n e^r with |r| <= ln 2 / 2, e^r by its Taylor polynomial of degree 7
 * (its remainder is 5e-9). Below the smallest subnormal 0, above the largest number infinity; a NaN
 * stays. */
COWMLX_INLINE F exp(F x) {
  x = min(set(89.0f), max(set(-104.0f), x));
  I n = round(x * set(0x1.715476p+0f));
  F steps = convert(n);
  F r = fnma(steps, set(0x1.62e400p-1f), x);
  r = fnma(steps, set(0x1.7f7d1cp-20f), r);
  F p = set(1.0f / 5040);
  p = fma(p, r, set(1.0f / 720));
  p = fma(p, r, set(1.0f / 120));
  p = fma(p, r, set(1.0f / 24));
  p = fma(p, r, set(1.0f / 6));
  p = fma(p, r, set(0.5f));
  F e = fma(p, r * r, r) + set(1.0f);
  /* In two factors, since 2^n alone may be no normal number where the result is one. */
  I half = shift_right<1>(n + set_word(256)) + set_word(0u - 128);
  I rest = n + (half ^ set_word(0xffffffff)) + set_word(1);
  e = e * as_floats(shift_left<23>(half + set_word(127)));
  return e * as_floats(shift_left<23>(rest + set_word(127)));
}

}  // namespace cowmlx::ISA
