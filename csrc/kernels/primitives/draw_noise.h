/* Gumbel numbers of one draw, and who wins with them. */
#pragma once

#include <cstdint>

#include "table.h"

namespace cowmlx {

/* The random key of a seed's n-th draw, and a number in [0, 1) that belongs to it, as in
 * cowmlx/generation/sampling/randomness.py. */
uint64_t draw_key(uint64_t seed, uint64_t number);
double draw_coin(uint64_t key);

/* The numbers of cowmlx/generation/sampling/randomness.py for a key and `size` tokens; only those
 * that may decide are computed. */
class Noise {
 public:
  Noise(const Table& table, uint64_t key, int size) : table_(table), key_(key), size_(size) {}

  /* The token with the highest scale * (logit - shift) + noise, of all tokens; among equals the
   * first. `shift` is the highest logit. */
  int32_t best_of_all(const float* logits, float shift, float scale) const;

  /* The same of some tokens, in ascending order. */
  int32_t best_of(const float* logits, const int32_t* tokens, int size, float shift,
                  float scale) const;

 private:
  /* The pair of counters of a token's bits. */
  void count(int32_t token, uint32_t* first, uint32_t* second) const;
  uint32_t bits(int32_t token) const;

  const Table& table_;
  uint64_t key_;
  int size_;
};

}  // namespace cowmlx
