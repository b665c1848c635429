/* One row of a batch: from its logits to a token, as cowmlx/generation/sampling.py tells it. */
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
  float scale = 1; /* the inverse of the temperature */
  double top_p = 1;
  bool has_min_p = false;
  float log_min_p = 0;
  double typical_p = 1;
  float xtc_threshold = 0;
  int64_t top_k = 0;
  std::vector<int32_t> spared; /* by XTC; ascending */
  std::vector<std::pair<int32_t, float>> bias;
  bool forbids = false; /* the bias does, some tokens */
  std::vector<PenaltyStep> penalties;
};

struct DrawRow {
  const DrawOptions* options;
  uint64_t key;          /* of the draw */
  bool excludes;         /* XTC happens */
  const int32_t* recent; /* the last tokens, as many as the longest window wants */
  int64_t recent_count;
  const bool* allowed; /* of every token, or null */
};

/* Memory for a row of n logits; each part has room for n numbers. */
struct DrawMemory {
  float* logits;
  float* weights;
  float* distances;
  float* values;
  int32_t* tokens;
};

/* Returns the token. `memory.logits` holds the row's n logits and is changed. */
int32_t draw_row(const Table& table, const DrawRow& row, int n, const DrawMemory& memory);

}  // namespace cowmlx
