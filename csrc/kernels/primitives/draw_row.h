/* One row of a batch: from its logits to a token, as cowmlx/generation/sampling/sampler.py tells it. */
#pragma once

#include <cstdint>
#include <memory>
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

/* What a generation does with logits; a filter's neutral number turns it off. Knows its owners for
 * the reason that HeldLayers does (layers.h). */
struct DrawOptions : std::enable_shared_from_this<DrawOptions> {
  bool samples = false;
  uint64_t seed = 0;
  float scale = 1; /* the inverse of the temperature */
  float top_n_sigma = 0;
  double top_p = 1;
  bool has_min_p = false;
  float log_min_p = 0;
  double typical_p = 1;
  double xtc_probability = 0;
  float xtc_threshold = 0;
  int64_t top_k = 0;
  double least_temperature = 0; /* where one token is sure; with most_temperature */
  double most_temperature = 0;  /* where all are alike; 0: `scale` holds */
  double temperature_exponent = 1;
  bool mirostat = false;
  std::vector<int32_t> spared; /* by XTC; ascending */
  std::vector<std::pair<int32_t, float>> bias;
  bool forbids = false; /* the bias does, some tokens */
  std::vector<PenaltyStep> penalties;
};

struct DrawRow {
  const DrawOptions* options;
  uint64_t number;       /* of the draw: with the seed it decides what is random */
  const int32_t* recent; /* the last tokens, as many as the longest window wants */
  int64_t recent_count;
  const std::pair<int32_t, float>* terms; /* tokens, each once; what is taken from their logits */
  int64_t term_count;
  float most_surprise; /* mirostat's, bits */
  const bool* allowed; /* of every token, or null */
};

struct Drawn {
  int32_t token;
  float surprise; /* bits, among the tokens that mirostat has left; else 0 */
};

/* Memory for a row of n logits; each part has room for n numbers. */
struct DrawMemory {
  float* logits;
  float* weights;
  float* distances;
  float* values;
  int32_t* tokens;
};

/* `memory.logits` holds the row's n logits and is changed. */
Drawn draw_row(const Table& table, const DrawRow& row, int n, const DrawMemory& memory);

}  // namespace cowmlx
