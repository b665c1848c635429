/* Attention of few queries, as in decoding, in tiles of positions. */
#pragma once

#include "beside.h"
#include "cached.h"
#include "rows.h"

namespace cowmlx::ISA {

/* Positions whose scores are computed, turned into weights and used up together: their keys and
 * values stay in the nearest cache. Tiles start at the first valid position, so that a row of a
 * batch is cut in the same places whatever its padding. */
constexpr int TILE = 64;

/* Below every score, and finite: what minus infinity is subtracted from. */
constexpr float LOWEST = -3.402823466e+38f;
constexpr float NEVER = -__builtin_inff();

/* Where a line of the nearest cache begins: a vector that lies across two is read in twice the
 * time. */
COWMLX_INLINE float* aligned(float* p) {
  constexpr uintptr_t LINE = LANES * sizeof(float);
  return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(p) + LINE - 1) / LINE * LINE);
}

/* Query t sees positions [low, high). */
struct Seen {
  int low, high;
};

COWMLX_INLINE Seen seen_by(const Attention& a, int t) {
  int64_t behind = static_cast<int64_t>(a.position) + t + 1;
  int64_t low = a.window > 0 && behind - a.window > a.first ? behind - a.window : a.first;
  int64_t high = behind < a.end ? behind : a.end;
  if (low > a.end) low = a.end;
  if (high < low) high = low;
  return {static_cast<int>(low), static_cast<int>(high)};
}

/* Where the tile that holds a position starts. */
COWMLX_INLINE int tile_start(const Attention& a, int position) {
  return a.first + (position - a.first) / TILE * TILE;
}

/* What an array mask makes of a score. */
COWMLX_INLINE float with_mask(const Attention& a, int head, int t, int position, float score) {
  int64_t at = head * a.mask_head_stride + t * a.mask_stride + position * a.mask_position_stride;
  if (a.mask_bool) return static_cast<const bool*>(a.mask)[at] ? score : NEVER;
  return score + static_cast<const float*>(a.mask)[at];
}

COWMLX_INLINE F capped(F score, float cap) { return tanh(score * set(1.0f / cap)) * set(cap); }

/* 1 / total, and 0 for a query that saw nothing. */
COWMLX_INLINE F share_of(F total) { return select_less(zero(), total, set(1.0f) / total, total); }

/* ---- few queries, as in decoding: 16 lanes hold 16 numbers of a key ---- */

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
                       F kept, float* out, Upcoming& upcoming) {
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
    upcoming.prefetch(2);
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
  const float* query;
  float* out;
  float largest, total; /* of the scores so far; of e^(score - largest) */
  F kept;               /* by which the last tile has shrunk what was before it */
  int from, to;         /* what it sees of the tile, from the tile's start on */
};

/* Scores of lanes [from, to), and NEVER in the rest. */
COWMLX_INLINE F seen_scores(F scores, int from, int to) {
  alignas(64) static const float LANE[LANES] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                8, 9, 10, 11, 12, 13, 14, 15};
  const F lane = load(LANE), never = set(NEVER);
  const F below = select_less(lane, set(static_cast<float>(to)), scores, never);
  return select_less(lane, set(static_cast<float>(from)), never, below);
}

/* Turn a tile's scores into weights, in all vectors that hold one that is seen. */
COWMLX_INLINE void weigh(const Attention& a, Query& q, int start, float* scores) {
  F largest = set(q.largest);
  for (int i = 0; i < q.to; i += LANES) {
    F score = load(scores + i) * set(a.scale);
    if (a.soft_cap > 0) score = capped(score, a.soft_cap);
    if (i < q.from || i + LANES > q.to) score = seen_scores(score, q.from - i, q.to - i);
    store(scores + i, score);
    if (a.mask == nullptr) largest = max(largest, score);
  }
  if (a.mask) {
    for (int i = q.from; i < q.to; i++) scores[i] = with_mask(a, q.head, q.t, start + i, scores[i]);
    for (int i = 0; i < q.to; i += LANES) largest = max(largest, load(scores + i));
  }
  float now = highest(largest);
  q.kept = exp(set(q.largest) - set(now));
  q.largest = now;
  F total = zero();
  for (int i = 0; i < q.to; i += LANES) {
    F weight = exp(load(scores + i) - set(now));
    store(scores + i, weight);
    total = total + weight;
  }
  float shrunk[LANES];
  store(shrunk, q.kept);
  q.total = q.total * shrunk[0] + sum(total);
}

/* Set up all queries, without results; returns the positions that some see. */
COWMLX_INLINE Seen begin_queries(const Attention& a, Query* queries) {
  Seen some{a.end, a.first};
  int count = 0;
  for (int t = 0; t < a.queries; t++)
    for (int head = 0; head < a.heads; head++) {
      Query& q = queries[count++];
      q.head = head;
      q.t = t;
      q.seen = seen_by(a, t);
      q.query = a.query + head * a.query_head_stride + t * a.query_stride;
      q.out = a.out + head * a.out_head_stride + t * a.out_stride;
      q.largest = a.sinks ? a.sinks[head] : LOWEST;
      q.total = a.sinks ? 1.0f : 0.0f;
      for (int i = 0; i < a.value_dim; i++) q.out[i] = 0;
      if (q.seen.low < some.low) some.low = q.seen.low;
      if (q.seen.high > some.high) some.high = q.seen.high;
    }
  return some;
}

/* Divide results by their weights, or write the state by which others do so. */
COWMLX_INLINE void end_queries(const Attention& a, const Query* queries, int count) {
  for (int k = 0; k < count; k++) {
    if (a.state != nullptr) {
      a.state[2 * k] = queries[k].largest;
      a.state[2 * k + 1] = queries[k].total;
      continue;
    }
    F share = share_of(set(queries[k].total));
    float* out = queries[k].out;
    each_vector(a.value_dim,
                [=](int d, int lanes) { put(out + d, get(out + d, lanes) * share, lanes); });
  }
}

COWMLX_INLINE void attend_few(const Attention& a, float* scratch) {
  Query queries[FEW];
  const int count = a.queries * a.heads;
  const auto [low, high] = begin_queries(a, queries);
  float* scores = scratch;
  float* room = scores + FEW * TILE;
  for (int start = tile_start(a, low); start < high; start += TILE) {
    int from = start < low ? low : start;
    int end = high < start + TILE ? high : start + TILE;
    Upcoming upcoming(a.values, from, end, a.value_dim);
    Tile keys = tile_of(a.keys, from, end - from, a.key_dim, room, &upcoming);
    for (int k = 0; k < count; k++) {
      Query& q = queries[k];
      float* own = scores + k * TILE;
      q.from = (q.seen.low > start ? q.seen.low : start) - start;
      q.to = (q.seen.high < end ? q.seen.high : end) - start;
      if (q.from >= q.to) continue;
      const float* key = keys.data + (start + q.from - from) * keys.stride;
      for (int i = 0; i < TILE; i++) own[i] = 0;
      int i = q.from;
      for (; i + 4 <= q.to; i += 4, key += 4 * keys.stride) {
        upcoming.prefetch(4);
        dots<4>(q.query, key, keys.stride, a.key_dim, own + i);
      }
      for (; i < q.to; i++, key += keys.stride)
        dots<1>(q.query, key, keys.stride, a.key_dim, own + i);
      weigh(a, q, start, own);
    }
    upcoming = Upcoming(a.keys, end, high < end + TILE ? high : end + TILE, a.key_dim);
    Tile values = tile_of(a.values, from, end - from, a.value_dim, room, &upcoming);
    for (int k = 0; k < count; k++) {
      Query& q = queries[k];
      if (q.from >= q.to) continue;
      const float* weights = scores + k * TILE + q.from;
      const float* value = values.data + (start + q.from - from) * values.stride;
      int positions = q.to - q.from, d = 0;
      for (; d + 4 * LANES <= a.value_dim; d += 4 * LANES)
        mix<4>(weights, value + d, values.stride, positions, q.kept, q.out + d, upcoming);
      for (; d + 2 * LANES <= a.value_dim; d += 2 * LANES)
        mix<2>(weights, value + d, values.stride, positions, q.kept, q.out + d, upcoming);
      for (; d + LANES <= a.value_dim; d += LANES)
        mix<1>(weights, value + d, values.stride, positions, q.kept, q.out + d, upcoming);
      if (d < a.value_dim)
        mix_rest(weights, value + d, values.stride, positions, q.kept, q.out + d, a.value_dim - d);
    }
  }
  end_queries(a, queries, count);
}

}  // namespace cowmlx::ISA
