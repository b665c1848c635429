/* Attention of few queries, as in decoding: 16 lanes hold 16 numbers of a key. The including file
 * has chosen an instruction set. */
#pragma once

#include "attention_tiles.h"

namespace cowmlx::ISA {

/* Up to so many queries of so many heads are few: more fill the lanes of attention_many.h. */
constexpr int FEW_QUERIES = 8;
constexpr int FEW_HEADS = 16;
constexpr int FEW = FEW_QUERIES * FEW_HEADS;

/* scores[i] = query . key of position from + i, for N positions. */
template <int N>
COWMLX_INLINE void dots(const float* query, const float* keys, int64_t stride, int dim,
                        float* scores) {
  F sums[N];
  for (int i = 0; i < N; i++) sums[i] = zero();
  each_vector(dim, [&](int d, int lanes) {
    F q = get(query + d, lanes);
    for (int i = 0; i < N; i++) sums[i] = fma(q, get(keys + i * stride + d, lanes), sums[i]);
  });
  if constexpr (N == 4)
    ISA::sums(sums, scores);
  else
    for (int i = 0; i < N; i++) scores[i] = sum(sums[i]);
}

/* out = out * kept + sum of weights[i] * values of position i, N vectors of it. Every second
 * position is added up apart, so that an addition need not wait for the one before. */
template <int N>
COWMLX_INLINE void mix(const float* weights, const float* values, int64_t stride, int positions,
                       F kept, float* out) {
  F even[N], odd[N];
  for (int k = 0; k < N; k++) even[k] = load(out + k * LANES) * kept;
  for (int k = 0; k < N; k++) odd[k] = zero();
  const auto add = [=](F(&sums)[N], int i) {
    const F weight = set(weights[i]);
    for (int k = 0; k < N; k++)
      sums[k] = fma(weight, load(values + i * stride + k * LANES), sums[k]);
  };
  int i = 0;
  for (; i + 2 <= positions; i += 2) {
    add(even, i);
    add(odd, i + 1);
  }
  if (i < positions) add(even, i);
  for (int k = 0; k < N; k++) store(out + k * LANES, even[k] + odd[k]);
}

COWMLX_INLINE void mix_rest(const float* weights, const float* values, int64_t stride,
                            int positions, F kept, float* out, int lanes) {
  F total = load(out, lanes) * kept;
  for (int i = 0; i < positions; i++)
    total = fma(set(weights[i]), load(values + i * stride, lanes), total);
  store(out, total, lanes);
}

/* One query of one head, between tiles. */
struct Query {
  int head, t;
  Seen seen;
  float* out;
  float largest, total; /* of the scores so far; of e^(score - largest) */
  F kept;               /* by which the last tile has shrunk what was before it */
  int from, to;         /* what it sees of the tile, from the tile's start on */
};

/* Turn a tile's scores into weights. */
COWMLX_INLINE void weigh(const Attention& a, Query& q, int start, float* scores) {
  for (int i = 0; i < TILE; i += LANES) {
    F score = load(scores + i) * set(a.scale);
    if (a.soft_cap > 0) score = capped(score, a.soft_cap);
    store(scores + i, score);
  }
  for (int i = 0; i < q.from; i++) scores[i] = NEVER;
  for (int i = q.to; i < TILE; i++) scores[i] = NEVER;
  if (a.mask)
    for (int i = q.from; i < q.to; i++) scores[i] = with_mask(a, q.head, q.t, start + i, scores[i]);
  F largest = set(q.largest);
  for (int i = 0; i < TILE; i += LANES) largest = max(largest, load(scores + i));
  float now = highest(largest);
  q.kept = exp(set(q.largest) - set(now));
  q.largest = now;
  F total = zero();
  for (int i = 0; i < TILE; i += LANES) {
    F weight = exp(load(scores + i) - set(now));
    store(scores + i, weight);
    total = total + weight;
  }
  float shrunk[LANES];
  store(shrunk, q.kept);
  q.total = q.total * shrunk[0] + sum(total);
}

COWMLX_INLINE void attend_few(const Attention& a, float* scratch) {
  Query queries[FEW];
  int count = 0, low = a.end, high = a.first;
  for (int t = 0; t < a.queries; t++)
    for (int head = 0; head < a.heads; head++) {
      Query& q = queries[count++];
      q.head = head;
      q.t = t;
      q.seen = seen_by(a, t);
      q.out = a.out + head * a.out_head_stride + t * a.out_stride;
      q.largest = a.sinks ? a.sinks[head] : LOWEST;
      q.total = a.sinks ? 1.0f : 0.0f;
      for (int i = 0; i < a.value_dim; i++) q.out[i] = 0;
      if (q.seen.low < low) low = q.seen.low;
      if (q.seen.high > high) high = q.seen.high;
    }
  float* scores = scratch;
  float* room = scores + FEW * TILE;
  for (int start = tile_start(a, low); start < high; start += TILE) {
    int from = start < low ? low : start;
    int end = high < start + TILE ? high : start + TILE;
    Tile keys = tile_of(a.keys, from, end - from, a.key_dim, room);
    for (int k = 0; k < count; k++) {
      Query& q = queries[k];
      float* own = scores + k * TILE;
      q.from = (q.seen.low > start ? q.seen.low : start) - start;
      q.to = (q.seen.high < end ? q.seen.high : end) - start;
      if (q.from >= q.to) continue;
      const float* query = a.query + q.head * a.query_head_stride + q.t * a.query_stride;
      const float* key = keys.data + (start + q.from - from) * keys.stride;
      for (int i = 0; i < TILE; i++) own[i] = 0;
      int i = q.from;
      for (; i + 4 <= q.to; i += 4, key += 4 * keys.stride)
        dots<4>(query, key, keys.stride, a.key_dim, own + i);
      for (; i < q.to; i++, key += keys.stride)
        dots<1>(query, key, keys.stride, a.key_dim, own + i);
      weigh(a, q, start, own);
    }
    Tile values = tile_of(a.values, from, end - from, a.value_dim, room);
    for (int k = 0; k < count; k++) {
      Query& q = queries[k];
      if (q.from >= q.to) continue;
      const float* weights = scores + k * TILE + q.from;
      const float* value = values.data + (start + q.from - from) * values.stride;
      int positions = q.to - q.from, d = 0;
      for (; d + 4 * LANES <= a.value_dim; d += 4 * LANES)
        mix<4>(weights, value + d, values.stride, positions, q.kept, q.out + d);
      for (; d + 2 * LANES <= a.value_dim; d += 2 * LANES)
        mix<2>(weights, value + d, values.stride, positions, q.kept, q.out + d);
      for (; d + LANES <= a.value_dim; d += LANES)
        mix<1>(weights, value + d, values.stride, positions, q.kept, q.out + d);
      if (d < a.value_dim)
        mix_rest(weights, value + d, values.stride, positions, q.kept, q.out + d, a.value_dim - d);
    }
  }
  for (int k = 0; k < count; k++) {
    F share = share_of(set(queries[k].total));
    float* out = queries[k].out;
    each_vector(a.value_dim,
                [=](int d, int lanes) { put(out + d, get(out + d, lanes) * share, lanes); });
  }
}

}  // namespace cowmlx::ISA
