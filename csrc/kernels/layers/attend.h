/* The middle of a layer: keys and values into the cache, and attention over it. */
#pragma once

#include "arena.h"
#include "layer.h"
#include "slabs.h"

namespace cowmlx {

/* Turn and norm the keys of rows [begin, begin + count) of the step, and write them and their
 * values into the layer's cache. `keys` and `values` are those rows', contiguous; keys are changed.
 */
void store(const AttentionHalf&, const Step&, const LayerCache&, float* keys, const float* values,
           int begin, int count);

/* Turn and norm all queries (B T, heads key_dim) in place, attend, and write (B T, heads
 * value_dim). */
void attend(const AttentionHalf&, const Step&, const LayerCache&, float* queries, float* out,
            float* scratch);

/* Numbers of scratch that attend() takes for each thread. */
size_t attend_scratch(const Table&, const AttentionHalf&);

/* y = norm(x) of one row of n numbers; a copy without a norm. */
void apply(const Table&, const Norm&, const float* x, int n, float* y);

}  // namespace cowmlx
