// The instruction of AVX-VNNI written out, for processors that lack it: included before all else.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define __AVXVNNI__ 1

static inline __m256i dpbusd(__m256i sum, __m256i a, __m256i b) {
  alignas(32) int32_t sums[8];
  alignas(32) uint8_t left[32];
  alignas(32) int8_t right[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(sums), sum);
  _mm256_store_si256(reinterpret_cast<__m256i*>(left), a);
  _mm256_store_si256(reinterpret_cast<__m256i*>(right), b);
  for (int i = 0; i < 32; i++) sums[i / 4] += left[i] * right[i];
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(sums));
}

#define _mm256_dpbusd_avx_epi32 dpbusd
