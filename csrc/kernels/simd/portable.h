/* 16 lanes as vectors of GCC and Clang, which cut them into the registers that a machine has. The
 * other files of this folder have the same names with the same meaning; what is said here of a
 * function holds there. */
#pragma once

#include "scalars.h"

namespace cowmlx::ISA {

typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Integers __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));

struct F {
  Floats v;
};
/* 16 words of 32 bits; as bytes, byte 0 of a word is its lowest. */
struct I {
  Words v;
};

/* How many of F the machine's registers hold, about: what products and attention keep in them. */
constexpr int VECTORS = 4;

#define COWMLX_EACH for (int i = 0; i < 16; i++)

COWMLX_INLINE F zero() { return F{}; }
COWMLX_INLINE F set(float x) { return {x - Floats{}}; }
COWMLX_INLINE F load(const float* p) {
  F r;
  memcpy(&r.v, p, sizeof r.v);
  return r;
}
/* The first n of 16 (0 … 16); what follows is neither read nor written, and 0 when loaded. */
COWMLX_INLINE F load(const float* p, int n) {
  F r;
  COWMLX_EACH r.v[i] = i < n ? p[i] : 0;
  return r;
}
COWMLX_INLINE void store(float* p, F a) { memcpy(p, &a.v, sizeof a.v); }
COWMLX_INLINE void store(float* p, F a, int n) {
  for (int i = 0; i < n; i++) p[i] = a.v[i];
}

COWMLX_INLINE F load_float16(const uint16_t* p) {
  F r;
  COWMLX_EACH r.v[i] = from_float16(p[i]);
  return r;
}
COWMLX_INLINE F load_float16(const uint16_t* p, int n) {
  F r;
  COWMLX_EACH r.v[i] = i < n ? from_float16(p[i]) : 0;
  return r;
}
COWMLX_INLINE F load_bfloat16(const uint16_t* p) {
  F r;
  COWMLX_EACH r.v[i] = from_bfloat16(p[i]);
  return r;
}
/* The same with the numbers in the lanes that suit the set best; in_order() puts them right. */
COWMLX_INLINE F load_bfloat16_apart(const uint16_t* p) { return load_bfloat16(p); }
COWMLX_INLINE F in_order(F apart) { return apart; }
COWMLX_INLINE F load_bfloat16(const uint16_t* p, int n) {
  F r;
  COWMLX_EACH r.v[i] = i < n ? from_bfloat16(p[i]) : 0;
  return r;
}
/* Round to nearest, ties to even; a NaN stays one. */
COWMLX_INLINE void store_float16(uint16_t* p, F a, int n = 16) {
  for (int i = 0; i < n; i++) p[i] = to_float16(a.v[i]);
}
COWMLX_INLINE void store_bfloat16(uint16_t* p, F a, int n = 16) {
  for (int i = 0; i < n; i++) p[i] = to_bfloat16(a.v[i]);
}

COWMLX_INLINE F operator+(F a, F b) {
  a.v += b.v;
  return a;
}
COWMLX_INLINE F operator-(F a, F b) {
  a.v -= b.v;
  return a;
}
COWMLX_INLINE F operator*(F a, F b) {
  a.v *= b.v;
  return a;
}
COWMLX_INLINE F operator/(F a, F b) {
  a.v /= b.v;
  return a;
}
/* Of a NaN and a number: no promise which (x86 gives b). */
COWMLX_INLINE F max(F a, F b) {
  a.v = a.v > b.v ? a.v : b.v;
  return a;
}
COWMLX_INLINE F min(F a, F b) {
  a.v = a.v < b.v ? a.v : b.v;
  return a;
}
/* a * b + c. Rounded once where the machine can; here twice, as a fused one in software is slow. */
COWMLX_INLINE F fma(F a, F b, F c) {
  c.v += a.v * b.v;
  return c;
}
/* c - a * b */
COWMLX_INLINE F fnma(F a, F b, F c) {
  c.v -= a.v * b.v;
  return c;
}
COWMLX_INLINE F abs(F a) {
  return {reinterpret_cast<Floats>(reinterpret_cast<Words>(a.v) & 0x7fffffff)};
}
COWMLX_INLINE F sqrt(F a) {
  COWMLX_EACH a.v[i] = __builtin_sqrtf(a.v[i]);
  return a;
}
/* x where a < b, else y; a comparison with a NaN is false. */
COWMLX_INLINE F select_less(F a, F b, F x, F y) {
  x.v = a.v < b.v ? x.v : y.v;
  return x;
}
/* Sums by halves, so that the order is the same on every machine: 8 + 8, 4 + 4, 2 + 2, 1 + 1. */
COWMLX_INLINE float sum(F a) {
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; i++) a.v[i] += a.v[i + half];
  return a.v[0];
}
/* sum() of four, in the same order. */
COWMLX_INLINE void sums(const F (&a)[4], float* to) {
  for (int i = 0; i < 4; i++) to[i] = sum(a[i]);
}
COWMLX_INLINE float highest(F a) {
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; i++) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  return a.v[0];
}

COWMLX_INLINE I set_word(uint32_t x) { return {x + Words{}}; }
COWMLX_INLINE I zero_words() { return I{}; }
/* 64 bytes, at any address. */
COWMLX_INLINE I load_words(const void* p) {
  I r;
  memcpy(&r.v, p, sizeof r.v);
  return r;
}
COWMLX_INLINE void store_words(void* p, I a) { memcpy(p, &a.v, sizeof a.v); }
/* 16 bytes, each widened to a word without sign. */
COWMLX_INLINE I load_bytes(const uint8_t* p) {
  I r;
  COWMLX_EACH r.v[i] = p[i];
  return r;
}
/* 16 numbers of 4 bits, lowest first, each widened to a word. */
COWMLX_INLINE I load_nibbles(const uint8_t* p) {
  I r;
  COWMLX_EACH r.v[i] = p[i / 2] >> i % 2 * 4 & 15;
  return r;
}
/* The lowest byte of each word. */
COWMLX_INLINE void store_bytes(void* p, I a) {
  COWMLX_EACH static_cast<uint8_t*>(p)[i] = static_cast<uint8_t>(a.v[i]);
}
/* The 4 bytes at p in every lane. */
COWMLX_INLINE I broadcast(const void* p) {
  uint32_t x;
  memcpy(&x, p, sizeof x);
  return set_word(x);
}
COWMLX_INLINE I operator+(I a, I b) {
  a.v += b.v;
  return a;
}
COWMLX_INLINE I operator&(I a, I b) {
  a.v &= b.v;
  return a;
}
COWMLX_INLINE I operator|(I a, I b) {
  a.v |= b.v;
  return a;
}
COWMLX_INLINE I operator^(I a, I b) {
  a.v ^= b.v;
  return a;
}
template <int N>
COWMLX_INLINE I shift_right(I a) {
  a.v = a.v >> N;
  return a;
}
template <int N>
COWMLX_INLINE I shift_left(I a) {
  a.v = a.v << N;
  return a;
}
template <int N>
COWMLX_INLINE I shift_right_signed(I a) {
  a.v = reinterpret_cast<Words>(reinterpret_cast<Integers>(a.v) >> N);
  return a;
}
/* Whether a shift, a mask and convert() make a float of some bits faster than lookup(). */
constexpr bool NUMBERS_BY_SHIFTS = false;
/* The compiler finishes this sum before it begins the next. */
COWMLX_INLINE F in_turn(F sum) { return sum; }
/* Words as signed integers. */
COWMLX_INLINE F convert(I a) {
  return {__builtin_convertvector(reinterpret_cast<Integers>(a.v), Floats)};
}
/* To the nearest integer, ties to even, for |a| < 2^22. */
COWMLX_INLINE I round(F a) { return {reinterpret_cast<Words>(a.v + 0x1.8p23f) - 0x4b400000}; }
/* The same bits, read as the other type. */
COWMLX_INLINE F as_floats(I a) { return {reinterpret_cast<Floats>(a.v)}; }
COWMLX_INLINE I as_words(F a) { return {reinterpret_cast<Words>(a.v)}; }
/* table[the lowest 4 bits of each word] */
COWMLX_INLINE F lookup(F table, I index) {
  F r;
  COWMLX_EACH r.v[i] = table.v[index.v[i] & 15];
  return r;
}
/* table's first 16 bytes [each byte, below 16]; the table is 16 bytes repeated (set_table). */
COWMLX_INLINE I lookup_bytes(I table, I index) {
  const uint8_t* t = reinterpret_cast<const uint8_t*>(&table.v);
  I r;
  COWMLX_EACH {
    uint32_t x = index.v[i];
    r.v[i] = t[x & 15] | t[(x >> 8) & 15] << 8 | t[(x >> 16) & 15] << 16 |
             static_cast<uint32_t>(t[(x >> 24) & 15]) << 24;
  }
  return r;
}
COWMLX_INLINE I set_table(const uint8_t* p) {
  I r;
  for (int i = 0; i < 4; i++) memcpy(reinterpret_cast<char*>(&r.v) + 16 * i, p, 16);
  return r;
}
/* In each lane: sum + a's 4 bytes without sign times b's 4 bytes with sign, which are no -128. dot4
 * takes bytes of a up to 127; dot4_wide all, less WIDE_MIDDLE. dot4_few() adds to sums that few()
 * makes integers of: 32 products with bytes of a up to 16, or 16 with bytes up to 32. DOT4_IS_ONE:
 * one instruction, so that many dot4() beside each other pay. */
constexpr bool DOT4_IS_ONE = false;
constexpr float WIDE_MIDDLE = 0;
template <int BYTE>
COWMLX_INLINE Integers byte_products(I a, I b) {
  const auto left = reinterpret_cast<Integers>((a.v >> 8 * BYTE) & 255);
  const auto right = reinterpret_cast<Integers>(b.v << (24 - 8 * BYTE)) >> 24;
  return left * right;
}
COWMLX_INLINE I dot4_wide(I sum, I a, I b) {
  const Integers low = byte_products<0>(a, b) + byte_products<1>(a, b);
  const Integers high = byte_products<2>(a, b) + byte_products<3>(a, b);
  return {sum.v + reinterpret_cast<Words>(low + high)};
}
COWMLX_INLINE I dot4(I sum, I a, I b) { return dot4_wide(sum, a, b); }
COWMLX_INLINE I dot4_few(I sum, I a, I b) { return dot4(sum, a, b); }
COWMLX_INLINE I few(I sum) { return sum; }

#undef COWMLX_EACH

}  // namespace cowmlx::ISA
