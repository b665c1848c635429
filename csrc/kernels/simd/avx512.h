/* 16 lanes as one register of AVX-512 (F, BW, VL, DQ; VNNI where the compiler's flags have it).
 * portable.h says what the functions mean. */
#pragma once

/* GCC 12's own headers leave registers undefined on purpose, and warn of it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "scalars.h"

namespace cowmlx::ISA {

struct F {
  __m512 v;
};
struct I {
  __m512i v;
};

constexpr int VECTORS = 32;

COWMLX_INLINE __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }

COWMLX_INLINE F zero() { return {_mm512_setzero_ps()}; }
COWMLX_INLINE F set(float x) { return {_mm512_set1_ps(x)}; }
COWMLX_INLINE F load(const float* p) { return {_mm512_loadu_ps(p)}; }
COWMLX_INLINE F load(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
COWMLX_INLINE void store(float* p, F a) { _mm512_storeu_ps(p, a.v); }
COWMLX_INLINE void store(float* p, F a, int n) { _mm512_mask_storeu_ps(p, first(n), a.v); }

COWMLX_INLINE F load_float16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
COWMLX_INLINE F load_float16(const uint16_t* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p))};
}
COWMLX_INLINE F widen_bfloat16(__m256i h) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}
COWMLX_INLINE F load_bfloat16(const uint16_t* p) {
  return widen_bfloat16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
COWMLX_INLINE F load_bfloat16(const uint16_t* p, int n) {
  return widen_bfloat16(_mm256_maskz_loadu_epi16(first(n), p));
}
COWMLX_INLINE F load_bfloat16_apart(const uint16_t* p) { return load_bfloat16(p); }
COWMLX_INLINE F in_order(F apart) { return apart; }
COWMLX_INLINE void store_float16(uint16_t* p, F a, int n = 16) {
  _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
COWMLX_INLINE void store_bfloat16(uint16_t* p, F a, int n = 16) {
  __m512i u = _mm512_castps_si512(a.v);
  __m512i high = _mm512_srli_epi32(u, 16);
  __m512i even = _mm512_and_si512(high, _mm512_set1_epi32(1));
  __m512i up =
      _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff))), 16);
  __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  up = _mm512_mask_or_epi32(up, nan, high, _mm512_set1_epi32(0x40));
  _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtepi32_epi16(up));
}

COWMLX_INLINE F operator+(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
COWMLX_INLINE F operator-(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
COWMLX_INLINE F operator*(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
COWMLX_INLINE F operator/(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
COWMLX_INLINE F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
COWMLX_INLINE F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
COWMLX_INLINE F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
COWMLX_INLINE F fnma(F a, F b, F c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
COWMLX_INLINE F abs(F a) { return {_mm512_abs_ps(a.v)}; }
COWMLX_INLINE F sqrt(F a) { return {_mm512_sqrt_ps(a.v)}; }
COWMLX_INLINE F select_less(F a, F b, F x, F y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
COWMLX_INLINE float sum(F a) {
  __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
/* sum() of four, in the same order. */
COWMLX_INLINE void sums(const F (&a)[4], float* to) {
  const auto halves = [](F x, F y) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(x.v, y.v, 0x44),
                         _mm512_shuffle_f32x4(x.v, y.v, 0xee));
  };
  const __m512 ab = halves(a[0], a[1]), cd = halves(a[2], a[3]);
  __m512 q = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  q = _mm512_add_ps(q, _mm512_permute_ps(q, 0x4e));
  q = _mm512_add_ps(q, _mm512_movehdup_ps(q));
  _mm_storeu_ps(to, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, q)));
}
COWMLX_INLINE float highest(F a) {
  __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

COWMLX_INLINE I set_word(uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
COWMLX_INLINE I zero_words() { return {_mm512_setzero_si512()}; }
COWMLX_INLINE I load_words(const void* p) {
  I words = {_mm512_loadu_si512(p)};
#ifdef __AVX512VNNI__ /* GCC reads them again for each use; loads are what decoding runs out of */
  __asm__("" : "+v"(words.v));
#endif
  return words;
}
COWMLX_INLINE void store_words(void* p, I a) { _mm512_storeu_si512(p, a.v); }
COWMLX_INLINE I load_bytes(const uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
COWMLX_INLINE I load_nibbles(const uint8_t* p) {
  const __m128i pairs = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i bytes = _mm_unpacklo_epi8(pairs, _mm_srli_epi16(pairs, 4));
  return {_mm512_cvtepu8_epi32(_mm_and_si128(bytes, _mm_set1_epi8(15)))};
}
COWMLX_INLINE void store_bytes(void* p, I a) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}
COWMLX_INLINE I broadcast(const void* p) {
  int x;
  memcpy(&x, p, sizeof x);
  return {_mm512_set1_epi32(x)};
}
COWMLX_INLINE I operator+(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
COWMLX_INLINE I operator&(I a, I b) { return {_mm512_and_si512(a.v, b.v)}; }
COWMLX_INLINE I operator|(I a, I b) { return {_mm512_or_si512(a.v, b.v)}; }
COWMLX_INLINE I operator^(I a, I b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int N>
COWMLX_INLINE I shift_right(I a) {
  return {_mm512_srli_epi32(a.v, N)};
}
template <int N>
COWMLX_INLINE I shift_left(I a) {
  return {_mm512_slli_epi32(a.v, N)};
}
template <int N>
COWMLX_INLINE I shift_right_signed(I a) {
  return {_mm512_srai_epi32(a.v, N)};
}
constexpr bool NUMBERS_BY_SHIFTS = false;
COWMLX_INLINE F in_turn(F sum) { return sum; }
COWMLX_INLINE F convert(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
COWMLX_INLINE I round(F a) { return {_mm512_cvtps_epi32(a.v)}; }
/* The nearest whole numbers, and a times 2 to the power of a whole number, rounded once. */
#define COWMLX_SCALES
COWMLX_INLINE F nearest(F a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
COWMLX_INLINE F scaled(F a, F power) { return {_mm512_scalef_ps(a.v, power.v)}; }
COWMLX_INLINE F as_floats(I a) { return {_mm512_castsi512_ps(a.v)}; }
COWMLX_INLINE I as_words(F a) { return {_mm512_castps_si512(a.v)}; }
COWMLX_INLINE F lookup(F table, I index) { return {_mm512_permutexvar_ps(index.v, table.v)}; }
COWMLX_INLINE I lookup_bytes(I table, I index) { return {_mm512_shuffle_epi8(table.v, index.v)}; }
COWMLX_INLINE I set_table(const uint8_t* p) {
  return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}

#ifdef __AVX512VNNI__
constexpr bool DOT4_IS_ONE = true;
COWMLX_INLINE I dot4(I sum, I a, I b) { return {_mm512_dpbusd_epi32(sum.v, a.v, b.v)}; }
COWMLX_INLINE I dot4_few(I sum, I a, I b) { return dot4(sum, a, b); }
COWMLX_INLINE I few(I sum) { return sum; }
constexpr float WIDE_MIDDLE = 0;
COWMLX_INLINE I dot4_wide(I sum, I a, I b) { return dot4(sum, a, b); }
#else
constexpr bool DOT4_IS_ONE = false;
/* Pairs of bytes up to 127 times bytes with sign fit 16 bits: 2 * 127 * 128 < 2^15. */
COWMLX_INLINE I dot4(I sum, I a, I b) {
  __m512i pairs = _mm512_maddubs_epi16(a.v, b.v);
  return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
}
/* Sums of 16 bits: half of 32 products with bytes up to 16 add up to 16 * 16 * 127 < 2^15. */
COWMLX_INLINE I dot4_few(I sum, I a, I b) {
  return {_mm512_add_epi16(sum.v, _mm512_maddubs_epi16(a.v, b.v))};
}
COWMLX_INLINE I few(I sum) { return {_mm512_madd_epi16(sum.v, _mm512_set1_epi16(1))}; }
/* a - 128 has a sign, which goes to b; 2 * 128 * 127 < 2^15. */
constexpr float WIDE_MIDDLE = 128;
COWMLX_INLINE I dot4_wide(I sum, I a, I b) {
  const __m512i less = _mm512_xor_si512(a.v, _mm512_set1_epi8(-128));
  const __mmask64 negative = _mm512_movepi8_mask(less);
  const __m512i turned = _mm512_mask_sub_epi8(b.v, negative, _mm512_setzero_si512(), b.v);
  return dot4(sum, {_mm512_abs_epi8(less)}, {turned});
}
#endif

#ifdef __AVX512BF16__
/* The order that puts number i of the first half of 32 before number i of the second. */
COWMLX_INLINE I interleaved() {
  alignas(64) uint16_t order[32];
  for (int i = 0; i < 16; i++) {
    order[2 * i] = static_cast<uint16_t>(i);
    order[2 * i + 1] = static_cast<uint16_t>(16 + i);
  }
  return {_mm512_load_si512(order)};
}
COWMLX_INLINE I permute_halves(I order, I a) { return {_mm512_permutexvar_epi16(order.v, a.v)}; }
/* 16 numbers of 16 bits, and 16 zeros. */
COWMLX_INLINE I load_half(const uint16_t* p) {
  return {_mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
/* Adds the products of two bfloat16 in each lane. */
COWMLX_INLINE F dot2(F sum, I a, I b) {
  return {
      _mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
}
#endif

}  // namespace cowmlx::ISA
