/* 16 lanes as two registers of AVX2, with FMA and F16C (AVX-VNNI where the compiler's flags have
 * it): lanes 0 … 7 and 8 … 15. portable.h says what the functions mean. */
#pragma once

#include <immintrin.h>

#include "scalars.h"

namespace cowmlx::ISA {

struct F {
  __m256 low, high;
};
struct I {
  __m256i low, high;
};

constexpr int VECTORS = 8;

/* All bits set in the first n of 16 words. */
COWMLX_INLINE I first(int n) {
  const __m256i count = _mm256_set1_epi32(n);
  return {_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
          _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}

COWMLX_INLINE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
COWMLX_INLINE F set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
COWMLX_INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
COWMLX_INLINE F load(const float* p, int n) {
  const I lanes = first(n);
  return {_mm256_maskload_ps(p, lanes.low), _mm256_maskload_ps(p + 8, lanes.high)};
}
COWMLX_INLINE void store(float* p, F a) {
  _mm256_storeu_ps(p, a.low);
  _mm256_storeu_ps(p + 8, a.high);
}
COWMLX_INLINE void store(float* p, F a, int n) {
  const I lanes = first(n);
  _mm256_maskstore_ps(p, lanes.low, a.low);
  _mm256_maskstore_ps(p + 8, lanes.high, a.high);
}

COWMLX_INLINE __m128i load_halves(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
COWMLX_INLINE F load_float16(const uint16_t* p) {
  return {_mm256_cvtph_ps(load_halves(p)), _mm256_cvtph_ps(load_halves(p + 8))};
}
COWMLX_INLINE F load_float16(const uint16_t* p, int n) {
  uint16_t copy[16] = {};
  memcpy(copy, p, static_cast<size_t>(n) * sizeof *p);
  return load_float16(copy);
}
COWMLX_INLINE __m256 widen_bfloat16(__m128i h) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
COWMLX_INLINE F load_bfloat16(const uint16_t* p) {
  return {widen_bfloat16(load_halves(p)), widen_bfloat16(load_halves(p + 8))};
}
COWMLX_INLINE F load_bfloat16(const uint16_t* p, int n) {
  uint16_t copy[16] = {};
  memcpy(copy, p, static_cast<size_t>(n) * sizeof *p);
  return load_bfloat16(copy);
}
/* Even numbers in the lower lanes, odd ones in the upper: two operations fewer than in order. */
COWMLX_INLINE F load_bfloat16_apart(const uint16_t* p) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i odd = _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)), _mm256_castsi256_ps(odd)};
}
COWMLX_INLINE F in_order(F apart) {
  const __m256 first = _mm256_unpacklo_ps(apart.low, apart.high);
  const __m256 second = _mm256_unpackhi_ps(apart.low, apart.high);
  return {_mm256_permute2f128_ps(first, second, 0x20), _mm256_permute2f128_ps(first, second, 0x31)};
}
COWMLX_INLINE void store_halves(uint16_t* p, __m256i halves, int n) {
  if (n == 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves);
    return;
  }
  uint16_t copy[16];
  memcpy(copy, &halves, sizeof copy);
  memcpy(p, copy, static_cast<size_t>(n) * sizeof *p);
}
COWMLX_INLINE void store_float16(uint16_t* p, F a, int n = 16) {
  const __m128i low = _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT);
  const __m128i high = _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT);
  store_halves(p, _mm256_set_m128i(high, low), n);
}
/* Words whose lower half is the number's bfloat16. */
COWMLX_INLINE __m256i narrow_bfloat16(__m256 a) {
  const __m256i u = _mm256_castps_si256(a), top = _mm256_srli_epi32(u, 16);
  const __m256i even = _mm256_and_si256(top, _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, bias), 16);
  const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
  const __m256 is_nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(is_nan));
}
/* Packing works within halves of a register: put its quarters in order again. */
COWMLX_INLINE __m256i pack_halves(__m256i low, __m256i high) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}
COWMLX_INLINE void store_bfloat16(uint16_t* p, F a, int n = 16) {
  store_halves(p, pack_halves(narrow_bfloat16(a.low), narrow_bfloat16(a.high)), n);
}

COWMLX_INLINE F operator+(F a, F b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
COWMLX_INLINE F operator-(F a, F b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
COWMLX_INLINE F operator*(F a, F b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
COWMLX_INLINE F operator/(F a, F b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
COWMLX_INLINE F max(F a, F b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
COWMLX_INLINE F min(F a, F b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
COWMLX_INLINE F fma(F a, F b, F c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
COWMLX_INLINE F fnma(F a, F b, F c) {
  return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
COWMLX_INLINE F abs(F a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
COWMLX_INLINE F sqrt(F a) { return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)}; }
COWMLX_INLINE F select_less(F a, F b, F x, F y) {
  return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
COWMLX_INLINE float sum(F a) {
  const __m256 h = _mm256_add_ps(a.low, a.high);
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
/* sum() of four, in the same order. */
COWMLX_INLINE void sums(const F (&a)[4], float* to) {
  const auto two = [](F x, F y) {
    const __m256 h = _mm256_add_ps(x.low, x.high), g = _mm256_add_ps(y.low, y.high);
    __m256 q =
        _mm256_add_ps(_mm256_permute2f128_ps(h, g, 0x20), _mm256_permute2f128_ps(h, g, 0x31));
    q = _mm256_add_ps(q, _mm256_permute_ps(q, 0x4e));
    return _mm256_add_ps(q, _mm256_movehdup_ps(q));
  };
  const __m256 all = _mm256_shuffle_ps(two(a[0], a[1]), two(a[2], a[3]), 0);
  _mm_storeu_ps(to, _mm_blend_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1), 10));
}
COWMLX_INLINE float highest(F a) {
  const __m256 h = _mm256_max_ps(a.low, a.high);
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

COWMLX_INLINE I set_word(uint32_t x) {
  const __m256i words = _mm256_set1_epi32(static_cast<int>(x));
  return {words, words};
}
COWMLX_INLINE I zero_words() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
COWMLX_INLINE I load_words(const void* p) {
  const auto* half = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(half), _mm256_loadu_si256(half + 1)};
}
COWMLX_INLINE void store_words(void* p, I a) {
  auto* half = static_cast<__m256i*>(p);
  _mm256_storeu_si256(half, a.low);
  _mm256_storeu_si256(half + 1, a.high);
}
COWMLX_INLINE I load_bytes(const uint8_t* p) {
  const __m128i bytes = load_halves(p);
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
COWMLX_INLINE I load_nibbles(const uint8_t* p) {
  const __m128i pairs = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i each = _mm_unpacklo_epi8(pairs, _mm_srli_epi16(pairs, 4));
  const __m128i bytes = _mm_and_si128(each, _mm_set1_epi8(15));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
COWMLX_INLINE void store_bytes(void* p, I a) {
  const __m256i byte = _mm256_set1_epi32(255);
  const __m256i halves = pack_halves(_mm256_and_si256(a.low, byte), _mm256_and_si256(a.high, byte));
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm_packus_epi16(_mm256_castsi256_si128(halves),
                                                              _mm256_extracti128_si256(halves, 1)));
}
COWMLX_INLINE I broadcast(const void* p) {
  uint32_t x;
  memcpy(&x, p, sizeof x);
  return set_word(x);
}
COWMLX_INLINE I operator+(I a, I b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
COWMLX_INLINE I operator&(I a, I b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
COWMLX_INLINE I operator|(I a, I b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
COWMLX_INLINE I operator^(I a, I b) {
  return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
}
template <int N>
COWMLX_INLINE I shift_right(I a) {
  return {_mm256_srli_epi32(a.low, N), _mm256_srli_epi32(a.high, N)};
}
template <int N>
COWMLX_INLINE I shift_left(I a) {
  return {_mm256_slli_epi32(a.low, N), _mm256_slli_epi32(a.high, N)};
}
template <int N>
COWMLX_INLINE I shift_right_signed(I a) {
  return {_mm256_srai_epi32(a.low, N), _mm256_srai_epi32(a.high, N)};
}
constexpr bool NUMBERS_BY_SHIFTS = true;
/* GCC would interleave the sums, and spill registers. */
COWMLX_INLINE __m256i in_turn(__m256i sum) {
  asm volatile("" : "+x"(sum));
  return sum;
}
COWMLX_INLINE F in_turn(F sum) {
  asm volatile("" : "+x"(sum.low), "+x"(sum.high));
  return sum;
}
COWMLX_INLINE F convert(I a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
COWMLX_INLINE I round(F a) { return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)}; }
COWMLX_INLINE F as_floats(I a) { return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)}; }
COWMLX_INLINE I as_words(F a) { return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)}; }

/* Bits 0 … 2 choose within each half of the table; bit 3, made the sign, chooses the half. */
COWMLX_INLINE __m256 lookup_half(F table, __m256i index) {
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, index),
                          _mm256_permutevar8x32_ps(table.high, index),
                          _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
COWMLX_INLINE F lookup(F table, I index) {
  return {lookup_half(table, index.low), lookup_half(table, index.high)};
}
COWMLX_INLINE I lookup_bytes(I table, I index) {
  return {_mm256_shuffle_epi8(table.low, index.low), _mm256_shuffle_epi8(table.high, index.high)};
}
COWMLX_INLINE I set_table(const uint8_t* p) {
  const __m256i table = _mm256_broadcastsi128_si256(load_halves(p));
  return {table, table};
}

#ifdef __AVXVNNI__
constexpr bool DOT4_IS_ONE = true;
COWMLX_INLINE I dot4(I sum, I a, I b) {
  return {_mm256_dpbusd_avx_epi32(sum.low, a.low, b.low),
          _mm256_dpbusd_avx_epi32(sum.high, a.high, b.high)};
}
COWMLX_INLINE I dot4_few(I sum, I a, I b) { return dot4(sum, a, b); }
COWMLX_INLINE I few(I sum) { return sum; }
constexpr float WIDE_MIDDLE = 0;
COWMLX_INLINE I dot4_wide(I sum, I a, I b) { return dot4(sum, a, b); }
#else
constexpr bool DOT4_IS_ONE = false;
/* Pairs of bytes up to 127 times bytes with sign fit 16 bits: 2 * 127 * 128 < 2^15. */
COWMLX_INLINE __m256i dot4_half(__m256i sum, __m256i a, __m256i b) {
  const __m256i pairs = _mm256_maddubs_epi16(a, b);
  return in_turn(_mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
}
COWMLX_INLINE I dot4(I sum, I a, I b) {
  return {dot4_half(sum.low, a.low, b.low), dot4_half(sum.high, a.high, b.high)};
}
/* Sums of 16 bits: half of 32 products with bytes up to 16 add up to 16 * 16 * 127 < 2^15. */
COWMLX_INLINE I dot4_few(I sum, I a, I b) {
  return {in_turn(_mm256_add_epi16(sum.low, _mm256_maddubs_epi16(a.low, b.low))),
          in_turn(_mm256_add_epi16(sum.high, _mm256_maddubs_epi16(a.high, b.high)))};
}
COWMLX_INLINE I few(I sum) {
  const __m256i one = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(sum.low, one), _mm256_madd_epi16(sum.high, one)};
}
/* a - 128 has a sign, which goes to b; 2 * 128 * 127 < 2^15. */
constexpr float WIDE_MIDDLE = 128;
COWMLX_INLINE __m256i dot4_wide_half(__m256i sum, __m256i a, __m256i b) {
  const __m256i less = _mm256_xor_si256(a, _mm256_set1_epi8(-128));
  return dot4_half(sum, _mm256_abs_epi8(less), _mm256_sign_epi8(b, less));
}
COWMLX_INLINE I dot4_wide(I sum, I a, I b) {
  return {dot4_wide_half(sum.low, a.low, b.low), dot4_wide_half(sum.high, a.high, b.high)};
}
#endif

}  // namespace cowmlx::ISA
