/* One row of a batch: from its logits to a token, as cowmlx/generation/sampling/sampler.py does
 * with mlx's operations. */
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "table.h"

namespace cowmlx {

enum class Penalty : int32_t { Repetition, Presence, Frequency };

struct PenaltyStep {
  Penalty kind;
  uint64_t window; /* how many of the last tokens it looks back on, at least 1 */
  float number;
};

/* A filter, or another step between logits and a token. */
struct SamplerStep {
  int sampler; /* from find_sampler() */
  std::vector<double> numbers;
};

/* What a generation does with logits. Knows its owners for the reason that HeldLayers does
 * (layers.h). */
struct SampleOptions : std::enable_shared_from_this<SampleOptions> {
  uint64_t seed = 0;
  std::vector<SamplerStep> samplers; /* in order; none: the token with the highest logit */
  std::vector<std::pair<int32_t, float>> bias;
  bool forbids = false; /* the bias does, some tokens */
  std::vector<PenaltyStep> penalties;
};

struct SampleRow {
  const SampleOptions* options;
  uint64_t number;       /* of the sample: with the seed it decides what is random */
  const int32_t* recent; /* the last tokens, as many as the longest window wants */
  int64_t recent_count;
  const std::pair<int32_t, float>* terms; /* tokens, each once; what is taken from their logits */
  int64_t term_count;
  float most_surprise; /* mirostat's, bits */
  const bool* allowed; /* of every token, or null */
};

struct Sampled {
  int32_t token;
  float surprise; /* bits, among the tokens that mirostat has left; else 0 */
};

/* Memory for a row of n logits; each part has room for n numbers. */
struct SampleMemory {
  float* logits;
  float* weights;
  float* distances;
  float* values;
  int32_t* tokens;
};

/* The index of a sampler with this many numbers; -1: there is none. The names and the numbers are
 * those of SAMPLERS in cowmlx/generation/sampling/filters.py. */
int find_sampler(const std::string& name, size_t numbers);

/* `memory.logits` holds the row's n logits and is changed. */
Sampled sample_row(const Table& table, const SampleRow& row, int n, const SampleMemory& memory);

/* The random key of a seed's n-th sample, and a number in [0, 1) that belongs to it, as in
 * cowmlx/generation/sampling/randomness.py. */
uint64_t sample_key(uint64_t seed, uint64_t number);
double sample_coin(uint64_t key);

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

/* The least of `numbers` (not negative, perhaps infinite) such that all up to it weigh `target`, or
 * infinity if all together weigh less. `weights` null: each weighs 1. */
float reach(const float* numbers, const float* weights, int n, double target);

}  // namespace cowmlx
