/* Functions of logits for samples: extremes, exponentials, random bits, and which logits may still
 * win. Meanings in table.h. The including file has chosen an instruction set. */
#pragma once

#include "vectors.h"

#include "../table.h"

namespace cowmlx::ISA {

COWMLX_KERNEL float maximum_of(const float* x, int n) {
  if (n < LANES) {
    float best = x[0];
    for (int i = 1; i < n; i++) best = x[i] > best ? x[i] : best;
    return best;
  }
  /* The last vector overlaps the one before. */
  F best[4] = {load(x), load(x), load(x), load(x + n - LANES)};
  int i = 0;
  for (; i + 4 * LANES <= n; i += 4 * LANES)
    for (int k = 0; k < 4; k++) best[k] = max(best[k], load(x + i + k * LANES));
  for (; i + LANES <= n; i += LANES) best[0] = max(best[0], load(x + i));
  return highest(max(max(best[0], best[1]), max(best[2], best[3])));
}

COWMLX_KERNEL double exponentials(const float* x, float shift, int n, float* out) {
  /* Lanes add up a few numbers each, so that float32 loses little. */
  constexpr int BLOCK = 64 * LANES;
  double total = 0;
  for (int from = 0; from < n; from += BLOCK) {
    F sums = zero();
    each_vector(n - from < BLOCK ? n - from : BLOCK, [=, &sums](int i, int lanes) {
      F e = only(exp(get(x + from + i, lanes) - set(shift)), lanes);
      put(out + from + i, e, lanes);
      sums = sums + e;
    });
    total += static_cast<double>(sum(sums));
  }
  return total;
}

template <int N>
COWMLX_INLINE void mix(I& a, I& b) {
  a = a + b;
  b = (shift_left<N>(b) | shift_right<32 - N>(b)) ^ a;
}

template <int A, int B, int C, int D>
COWMLX_INLINE void mix_and_add(I& a, I& b, uint32_t to_a, uint32_t to_b) {
  mix<A>(a, b);
  mix<B>(a, b);
  mix<C>(a, b);
  mix<D>(a, b);
  a = a + set_word(to_a);
  b = b + set_word(to_b);
}

COWMLX_KERNEL void threefry(uint64_t key, const uint32_t* first, const uint32_t* second, int n,
                            uint32_t* a, uint32_t* b) {
  const uint32_t k0 = static_cast<uint32_t>(key >> 32), k1 = static_cast<uint32_t>(key);
  const uint32_t k2 = k0 ^ k1 ^ 0x1BD11BDA;
  for (int i = 0; i < n; i += LANES) {
    I x = load_words(first + i) + set_word(k0), y = load_words(second + i) + set_word(k1);
    mix_and_add<13, 15, 26, 6>(x, y, k1, k2 + 1);
    mix_and_add<17, 29, 16, 24>(x, y, k2, k0 + 2);
    mix_and_add<13, 15, 26, 6>(x, y, k0, k1 + 3);
    mix_and_add<17, 29, 16, 24>(x, y, k1, k2 + 4);
    mix_and_add<13, 15, 26, 6>(x, y, k2, k0 + 5);
    store_words(a + i, x);
    store_words(b + i, y);
  }
}

COWMLX_KERNEL int contenders(const float* x, const uint32_t* bits, int n, float shift, float scale,
                             float best, int32_t* places) {
  int found = 0;
  each_vector(n, [=, &found](int i, int lanes) {
    uint32_t own[LANES] = {};
    if (lanes < LANES)
      for (int lane = 0; lane < lanes; lane++) own[lane] = bits[i + lane];
    const I words = lanes < LANES ? load_words(own) : load_words(bits + i);
    /* Rounded down, so that no number that is small enough is missed. */
    const F uniform = convert(shift_right<8>(words)) * set(0x1p-24f);
    const F score = (get(x + i, lanes) - set(shift)) * set(scale);
    const F gap = exp(score - set(best)) * set(1.001f) - uniform;
    if (!(highest(gap) >= 0)) return;
    float gaps[LANES];
    store(gaps, gap);
    for (int lane = 0; lane < lanes; lane++)
      if (gaps[lane] >= 0) places[found++] = i + lane;
  });
  return found;
}

}  // namespace cowmlx::ISA
