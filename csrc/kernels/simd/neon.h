/* 16 lanes as four registers of NEON, with dot products (ARMv8.2; I8MM where the compiler's flags
 * have it). portable.h says what the functions mean. */
#pragma once

#include <arm_neon.h>

#include "scalars.h"

namespace cowmlx::ISA {

struct F {
  float32x4_t v[4];
};
struct I {
  uint32x4_t v[4];
};

constexpr int VECTORS = 8;

#define COWMLX_EACH for (int i = 0; i < 4; i++)

COWMLX_INLINE F set(float x) {
  F r;
  COWMLX_EACH r.v[i] = vdupq_n_f32(x);
  return r;
}
COWMLX_INLINE F zero() { return set(0); }
COWMLX_INLINE F load(const float* p) {
  F r;
  COWMLX_EACH r.v[i] = vld1q_f32(p + 4 * i);
  return r;
}
COWMLX_INLINE void store(float* p, F a) { COWMLX_EACH vst1q_f32(p + 4 * i, a.v[i]); }
COWMLX_INLINE F load(const float* p, int n) {
  float copy[16] = {};
  memcpy(copy, p, static_cast<size_t>(n) * sizeof *p);
  return load(copy);
}
COWMLX_INLINE void store(float* p, F a, int n) {
  float copy[16];
  store(copy, a);
  memcpy(p, copy, static_cast<size_t>(n) * sizeof *p);
}

COWMLX_INLINE F load_float16(const uint16_t* p) {
  F r;
  COWMLX_EACH r.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
  return r;
}
COWMLX_INLINE F load_float16(const uint16_t* p, int n) {
  uint16_t copy[16] = {};
  memcpy(copy, p, static_cast<size_t>(n) * sizeof *p);
  return load_float16(copy);
}
COWMLX_INLINE F load_bfloat16(const uint16_t* p) {
  F r;
  COWMLX_EACH r.v[i] = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16));
  return r;
}
COWMLX_INLINE F load_bfloat16(const uint16_t* p, int n) {
  uint16_t copy[16] = {};
  memcpy(copy, p, static_cast<size_t>(n) * sizeof *p);
  return load_bfloat16(copy);
}
COWMLX_INLINE F load_bfloat16_apart(const uint16_t* p) { return load_bfloat16(p); }
COWMLX_INLINE F in_order(F apart) { return apart; }
COWMLX_INLINE void store_float16(uint16_t* p, F a, int n = 16) {
  uint16_t copy[16];
  COWMLX_EACH vst1_u16(copy + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
  memcpy(p, copy, static_cast<size_t>(n) * sizeof *p);
}
COWMLX_INLINE uint16x4_t narrow_bfloat16(float32x4_t a) {
  const uint32x4_t u = vreinterpretq_u32_f32(a), top = vshrq_n_u32(u, 16);
  const uint32x4_t bias = vaddq_u32(vandq_u32(top, vdupq_n_u32(1)), vdupq_n_u32(0x7fff));
  const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(u, bias), 16);
  const uint32x4_t quiet = vorrq_u32(top, vdupq_n_u32(0x40));
  return vmovn_u32(vbslq_u32(vceqq_f32(a, a), rounded, quiet));
}
COWMLX_INLINE void store_bfloat16(uint16_t* p, F a, int n = 16) {
  uint16_t copy[16];
  COWMLX_EACH vst1_u16(copy + 4 * i, narrow_bfloat16(a.v[i]));
  memcpy(p, copy, static_cast<size_t>(n) * sizeof *p);
}

COWMLX_INLINE F operator+(F a, F b) {
  COWMLX_EACH a.v[i] = vaddq_f32(a.v[i], b.v[i]);
  return a;
}
COWMLX_INLINE F operator-(F a, F b) {
  COWMLX_EACH a.v[i] = vsubq_f32(a.v[i], b.v[i]);
  return a;
}
COWMLX_INLINE F operator*(F a, F b) {
  COWMLX_EACH a.v[i] = vmulq_f32(a.v[i], b.v[i]);
  return a;
}
COWMLX_INLINE F operator/(F a, F b) {
  COWMLX_EACH a.v[i] = vdivq_f32(a.v[i], b.v[i]);
  return a;
}
COWMLX_INLINE F max(F a, F b) {
  COWMLX_EACH a.v[i] = vmaxq_f32(a.v[i], b.v[i]);
  return a;
}
COWMLX_INLINE F min(F a, F b) {
  COWMLX_EACH a.v[i] = vminq_f32(a.v[i], b.v[i]);
  return a;
}
COWMLX_INLINE F fma(F a, F b, F c) {
  COWMLX_EACH c.v[i] = vfmaq_f32(c.v[i], a.v[i], b.v[i]);
  return c;
}
COWMLX_INLINE F fnma(F a, F b, F c) {
  COWMLX_EACH c.v[i] = vfmsq_f32(c.v[i], a.v[i], b.v[i]);
  return c;
}
COWMLX_INLINE F abs(F a) {
  COWMLX_EACH a.v[i] = vabsq_f32(a.v[i]);
  return a;
}
COWMLX_INLINE F sqrt(F a) {
  COWMLX_EACH a.v[i] = vsqrtq_f32(a.v[i]);
  return a;
}
COWMLX_INLINE F select_less(F a, F b, F x, F y) {
  COWMLX_EACH x.v[i] = vbslq_f32(vcltq_f32(a.v[i], b.v[i]), x.v[i], y.v[i]);
  return x;
}
COWMLX_INLINE float sum(F a) {
  const float32x4_t four = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
/* sum() of four, in the same order. */
COWMLX_INLINE void sums(const F (&a)[4], float* to) {
  for (int i = 0; i < 4; i++) to[i] = sum(a[i]);
}
COWMLX_INLINE float highest(F a) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.v[0], a.v[2]), vmaxq_f32(a.v[1], a.v[3])));
}

COWMLX_INLINE I set_word(uint32_t x) {
  I r;
  COWMLX_EACH r.v[i] = vdupq_n_u32(x);
  return r;
}
COWMLX_INLINE I zero_words() { return set_word(0); }
COWMLX_INLINE I load_words(const void* p) {
  I r;
  COWMLX_EACH r.v[i] = vreinterpretq_u32_u8(vld1q_u8(static_cast<const uint8_t*>(p) + 16 * i));
  return r;
}
COWMLX_INLINE void store_words(void* p, I a) {
  COWMLX_EACH vst1q_u8(static_cast<uint8_t*>(p) + 16 * i, vreinterpretq_u8_u32(a.v[i]));
}
COWMLX_INLINE I widen_bytes(uint8x16_t bytes) {
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
  return {{vmovl_u16(vget_low_u16(low)), vmovl_u16(vget_high_u16(low)),
           vmovl_u16(vget_low_u16(high)), vmovl_u16(vget_high_u16(high))}};
}
COWMLX_INLINE I load_bytes(const uint8_t* p) { return widen_bytes(vld1q_u8(p)); }
COWMLX_INLINE I load_nibbles(const uint8_t* p) {
  const uint8x8_t pairs = vld1_u8(p);
  const uint8x8x2_t each = vzip_u8(vand_u8(pairs, vdup_n_u8(15)), vshr_n_u8(pairs, 4));
  return widen_bytes(vcombine_u8(each.val[0], each.val[1]));
}
COWMLX_INLINE void store_bytes(void* p, I a) {
  const uint16x8_t low = vcombine_u16(vmovn_u32(a.v[0]), vmovn_u32(a.v[1]));
  const uint16x8_t high = vcombine_u16(vmovn_u32(a.v[2]), vmovn_u32(a.v[3]));
  vst1q_u8(static_cast<uint8_t*>(p), vcombine_u8(vmovn_u16(low), vmovn_u16(high)));
}
COWMLX_INLINE I broadcast(const void* p) {
  uint32_t x;
  memcpy(&x, p, sizeof x);
  return set_word(x);
}
COWMLX_INLINE I operator+(I a, I b) {
  COWMLX_EACH a.v[i] = vaddq_u32(a.v[i], b.v[i]);
  return a;
}
COWMLX_INLINE I operator&(I a, I b) {
  COWMLX_EACH a.v[i] = vandq_u32(a.v[i], b.v[i]);
  return a;
}
COWMLX_INLINE I operator|(I a, I b) {
  COWMLX_EACH a.v[i] = vorrq_u32(a.v[i], b.v[i]);
  return a;
}
COWMLX_INLINE I operator^(I a, I b) {
  COWMLX_EACH a.v[i] = veorq_u32(a.v[i], b.v[i]);
  return a;
}
/* NEON's own shifts to the right are of 1 … 32 bits. */
template <int N>
COWMLX_INLINE I shift_right(I a) {
  if constexpr (N > 0) COWMLX_EACH a.v[i] = vshrq_n_u32(a.v[i], N);
  return a;
}
template <int N>
COWMLX_INLINE I shift_left(I a) {
  COWMLX_EACH a.v[i] = vshlq_n_u32(a.v[i], N);
  return a;
}
template <int N>
COWMLX_INLINE I shift_right_signed(I a) {
  COWMLX_EACH a.v[i] = vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(a.v[i]), N));
  return a;
}
constexpr bool NUMBERS_BY_SHIFTS = true;
COWMLX_INLINE F in_turn(F sum) { return sum; }
COWMLX_INLINE F convert(I a) {
  F r;
  COWMLX_EACH r.v[i] = vcvtq_f32_s32(vreinterpretq_s32_u32(a.v[i]));
  return r;
}
COWMLX_INLINE I round(F a) {
  I r;
  COWMLX_EACH r.v[i] = vreinterpretq_u32_s32(vcvtnq_s32_f32(a.v[i]));
  return r;
}
COWMLX_INLINE F as_floats(I a) {
  F r;
  COWMLX_EACH r.v[i] = vreinterpretq_f32_u32(a.v[i]);
  return r;
}
COWMLX_INLINE I as_words(F a) {
  I r;
  COWMLX_EACH r.v[i] = vreinterpretq_u32_f32(a.v[i]);
  return r;
}

/* The table's 64 bytes, read at 4 i, 4 i + 1, 4 i + 2, 4 i + 3. */
COWMLX_INLINE F lookup(F table, I index) {
  uint8x16x4_t bytes;
  COWMLX_EACH bytes.val[i] = vreinterpretq_u8_f32(table.v[i]);
  F r;
  COWMLX_EACH {
    const uint32x4_t entry = vandq_u32(index.v[i], vdupq_n_u32(15));
    const uint32x4_t places = vmlaq_u32(vdupq_n_u32(0x03020100), entry, vdupq_n_u32(0x04040404));
    r.v[i] = vreinterpretq_f32_u8(vqtbl4q_u8(bytes, vreinterpretq_u8_u32(places)));
  }
  return r;
}
COWMLX_INLINE I lookup_bytes(I table, I index) {
  I r;
  COWMLX_EACH r.v[i] = vreinterpretq_u32_u8(
      vqtbl1q_u8(vreinterpretq_u8_u32(table.v[i]), vreinterpretq_u8_u32(index.v[i])));
  return r;
}
COWMLX_INLINE I set_table(const uint8_t* p) {
  I r;
  COWMLX_EACH r.v[i] = vreinterpretq_u32_u8(vld1q_u8(p));
  return r;
}

#ifdef __ARM_FEATURE_MATMUL_INT8
constexpr bool DOT4_IS_ONE = true;
COWMLX_INLINE I dot4(I sum, I a, I b) {
  COWMLX_EACH sum.v[i] = vreinterpretq_u32_s32(vusdotq_s32(
      vreinterpretq_s32_u32(sum.v[i]), vreinterpretq_u8_u32(a.v[i]), vreinterpretq_s8_u32(b.v[i])));
  return sum;
}
COWMLX_INLINE I dot4_few(I sum, I a, I b) { return dot4(sum, a, b); }
COWMLX_INLINE I few(I sum) { return sum; }
constexpr float WIDE_MIDDLE = 0;
COWMLX_INLINE I dot4_wide(I sum, I a, I b) { return dot4(sum, a, b); }

/* Sums of four rows of activations: of rows 2 i and 2 i + 1 with two lanes each. */
#define COWMLX_PAIRS
struct Pairs {
  int32x4_t v[2][8];
};
COWMLX_INLINE Pairs zero_pairs() {
  Pairs r;
  for (auto& half : r.v)
    for (int32x4_t& sum : half) sum = vdupq_n_s32(0);
  return r;
}
/* Add products of eight bytes: of 16 lanes, four in `first` and four in `second`, and of four rows,
 * which stand beside each other at x. */
COWMLX_INLINE void add_products(Pairs& sums, I first, I second, const uint32_t* x) {
  const uint32x4_t four = vld1q_u32(x), more = vld1q_u32(x + 4);
  const int8x16_t rows[2] = {vreinterpretq_s8_u32(vzip1q_u32(four, more)),
                             vreinterpretq_s8_u32(vzip2q_u32(four, more))};
  COWMLX_EACH {
    const uint8x16_t low = vreinterpretq_u8_u32(vzip1q_u32(first.v[i], second.v[i]));
    const uint8x16_t high = vreinterpretq_u8_u32(vzip2q_u32(first.v[i], second.v[i]));
    for (int half = 0; half < 2; half++) {
      sums.v[half][2 * i] = vusmmlaq_s32(sums.v[half][2 * i], low, rows[half]);
      sums.v[half][2 * i + 1] = vusmmlaq_s32(sums.v[half][2 * i + 1], high, rows[half]);
    }
  }
}
/* The sums of one row. */
COWMLX_INLINE I sums_of(const Pairs& sums, int row) {
  const auto& half = sums.v[row / 2];
  I r;
  COWMLX_EACH r.v[i] =
      vreinterpretq_u32_s32(row % 2 == 0 ? vuzp1q_s32(half[2 * i], half[2 * i + 1])
                                         : vuzp2q_s32(half[2 * i], half[2 * i + 1]));
  return r;
}
#else
COWMLX_INLINE int8x16_t signed_bytes(uint32x4_t a) { return vreinterpretq_s8_u32(a); }

constexpr bool DOT4_IS_ONE = false;
/* Bytes up to 127 are the same with and without sign. */
COWMLX_INLINE I dot4(I sum, I a, I b) {
  COWMLX_EACH sum.v[i] = vreinterpretq_u32_s32(
      vdotq_s32(vreinterpretq_s32_u32(sum.v[i]), signed_bytes(a.v[i]), signed_bytes(b.v[i])));
  return sum;
}
COWMLX_INLINE I dot4_few(I sum, I a, I b) { return dot4(sum, a, b); }
COWMLX_INLINE I few(I sum) { return sum; }
/* With the first bit turned over, a is a - 128 with a sign. */
constexpr float WIDE_MIDDLE = 128;
COWMLX_INLINE I dot4_wide(I sum, I a, I b) { return dot4(sum, a ^ set_word(0x80808080), b); }
#endif

#undef COWMLX_EACH

}  // namespace cowmlx::ISA
