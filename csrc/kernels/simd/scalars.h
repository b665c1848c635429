/* Numbers of 16 bits and fewer, one at a time, on any machine. */
#pragma once

#include <cstdint>
#include <cstring>

/* Everything of an instruction set has internal linkage or lies in that set's namespace: a function
 * compiled for AVX-512 must never be the one that the linker keeps for all. */
#define COWMLX_INLINE static inline __attribute__((always_inline))

namespace cowmlx::ISA {

COWMLX_INLINE uint32_t bits_of(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

COWMLX_INLINE float float_of(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

COWMLX_INLINE float from_bfloat16(uint16_t b) { return float_of(static_cast<uint32_t>(b) << 16); }

/* Round to nearest, ties to even; a NaN stays one. */
COWMLX_INLINE uint16_t to_bfloat16(float x) {
  uint32_t u = bits_of(x);
  if ((u & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((u >> 16) | 0x40);
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

COWMLX_INLINE float from_float16(uint16_t h) {
  uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, rest = h & 0x7fff;
  if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | ((rest & 0x3ff) << 13));
  if (rest >= 0x0400) return float_of(sign | ((rest + ((127 - 15) << 10)) << 13));
  float subnormal = static_cast<float>(rest) * 0x1p-24f;
  return float_of(sign | bits_of(subnormal));
}

/* Round to nearest, ties to even; overflow gives infinity; a NaN stays one. */
COWMLX_INLINE uint16_t to_float16(float x) {
  uint32_t u = bits_of(x);
  uint32_t sign = (u >> 16) & 0x8000, rest = u & 0x7fffffff;
  if (rest > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | ((rest >> 13) & 0x3ff));
  if (rest >= 0x47800000) return static_cast<uint16_t>(sign | 0x7c00);
  if (rest < 0x38800000) {
    /* Adding 0.5 puts a subnormal's unit, 2^-24, at the last place: the addition rounds. */
    float shifted = float_of(rest) + 0.5f;
    return static_cast<uint16_t>(sign | (bits_of(shifted) - 0x3f000000));
  }
  rest += 0xfff + ((rest >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rest - (112u << 23)) >> 13));
}

/* Numbers of 8 bits, 4 of them exponent (OCP 8-bit floating point, E4M3): no infinity. */
COWMLX_INLINE float from_e4m3(uint8_t b) {
  uint32_t sign = static_cast<uint32_t>(b & 0x80) << 24, rest = b & 0x7f;
  if (rest == 0x7f) return float_of(sign | 0x7fc00000);
  if (rest < 8) return float_of(sign | bits_of(static_cast<float>(rest) * 0x1p-9f));
  return float_of(sign | ((rest << 20) + (120u << 23)));
}

/* A power of two, 2^(b - 127) (OCP microscaling formats, E8M0); 255 is a NaN. */
COWMLX_INLINE float from_e8m0(uint8_t b) {
  if (b == 255) return float_of(0x7fc00000);
  return float_of(b == 0 ? 0x00400000 : static_cast<uint32_t>(b) << 23);
}

}  // namespace cowmlx::ISA
