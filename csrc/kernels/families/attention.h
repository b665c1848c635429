/* Attention over a cache; meanings in table.h. The including file has chosen an instruction set. */
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
    Upcoming upcoming(a.values, from, end, a.value_dim);
    Tile keys = tile_of(a.keys, from, end - from, a.key_dim, room, &upcoming);
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
      for (; i + 4 <= q.to; i += 4, key += 4 * keys.stride) {
        upcoming.prefetch(4);
        dots<4>(query, key, keys.stride, a.key_dim, own + i);
      }
      for (; i < q.to; i++, key += keys.stride)
        dots<1>(query, key, keys.stride, a.key_dim, own + i);
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

/* ---- many queries, as in prompts: 16 lanes hold 16 queries, then 16 numbers of a value ---- */

/* Vectors, and numbers that each is multiplied with, whose sums stay in registers. */
constexpr int WIDE = VECTORS >= 32 ? 2 : 1;
constexpr int DEEP = VECTORS >= 32 ? 8 : 4;
constexpr int QUERIES = WIDE * LANES;

/* sums[i] += number(i, k) * b[k], for every k, where b[k] is W vectors `stride` apart, of so many
 * lanes. */
template <int N, int W, class Number>
COWMLX_INLINE void outer(Number number, const float* b, int64_t stride, int lanes, int count,
                         F (&sums)[N][W]) {
  for (int k = 0; k < count; k++) {
    F row[W];
    for (int w = 0; w < W; w++) row[w] = get(b + k * stride + w * LANES, lanes);
    for (int i = 0; i < N; i++) {
      const F one = set(number(i, k));
      for (int w = 0; w < W; w++) sums[i][w] = fma(one, row[w], sums[i][w]);
    }
  }
}

/* Up to W vectors of queries, between tiles. Lanes behind the last do what it does. */
template <int W>
struct Queries {
  static constexpr int ALL = W * LANES;

  int count;
  int head[ALL], t[ALL];
  float* out[ALL];
  float low[ALL], high[ALL]; /* what each sees, from `any` on: small, so that floats are exact */
  float kept[ALL];           /* by which the last tile has shrunk what was before it */
  F largest[W], total[W];    /* of the scores so far; of e^(score - largest) */
  Seen any, all;             /* positions that some see, and that all see */

  /* Numbers [row, row_end) of t * heads + head; `turned` becomes [key dim][query]. */
  Queries(const Attention& a, int64_t row, int64_t row_end, float* turned)
      : count(static_cast<int>(row_end - row)), any{a.end, a.first}, all{a.first, a.end} {
    int now = static_cast<int>(row / a.heads), own = static_cast<int>(row % a.heads);
    const float* query[ALL];
    Seen sees[ALL];
    for (int lane = 0; lane < ALL; lane++) {
      head[lane] = own;
      t[lane] = now;
      query[lane] = a.query + own * a.query_head_stride + now * a.query_stride;
      out[lane] = a.out + own * a.out_head_stride + now * a.out_stride;
      const Seen seen = sees[lane] = seen_by(a, now);
      kept[lane] = a.sinks ? a.sinks[own] : LOWEST;
      if (seen.low < any.low) any.low = seen.low;
      if (seen.high > any.high) any.high = seen.high;
      if (seen.low > all.low) all.low = seen.low;
      if (seen.high < all.high) all.high = seen.high;
      if (lane + 1 >= count) continue;
      each_vector(a.value_dim, [&](int d, int lanes) { put(out[lane] + d, zero(), lanes); });
      if (++own < a.heads) continue;
      own = 0;
      now++;
    }
    each_vector(a.value_dim, [&](int d, int lanes) { put(out[count - 1] + d, zero(), lanes); });
    for (int lane = 0; lane < ALL; lane++) {
      low[lane] = static_cast<float>(sees[lane].low - any.low);
      high[lane] = static_cast<float>(sees[lane].high - any.high);
    }
    for (int lane = 0; lane < ALL; lane += 4)
      beside_rows(query + lane, a.key_dim, ALL, turned + lane);
    for (int64_t i = 0; i < int64_t{a.key_dim} * ALL; i += LANES)
      store(turned + i, load(turned + i) * set(a.scale));
    for (int w = 0; w < W; w++) {
      largest[w] = load(kept + w * LANES);
      total[w] = set(a.sinks ? 1.0f : 0.0f);
    }
  }

  /* scores[position][query] of a tile's n positions. */
  void score(const Attention& a, const Tile& keys, int n, const float* turned,
             float* scores) const {
    for (int i = 0; i < n; i += DEEP) {
      const float* rows[DEEP];
      for (int k = 0; k < DEEP; k++)
        rows[k] = keys.data + (i + k < n ? i + k : n - 1) * keys.stride;
      F sums[DEEP][W];
      for (int k = 0; k < DEEP; k++)
        for (int w = 0; w < W; w++) sums[k][w] = zero();
      outer([&](int k, int d) { return rows[k][d]; }, turned, ALL, LANES, a.key_dim, sums);
      for (int k = 0; k < DEEP; k++)
        for (int w = 0; w < W; w++) {
          const F x = a.soft_cap > 0 ? capped(sums[k][w], a.soft_cap) : sums[k][w];
          store(scores + (i + k) * ALL + w * LANES, x);
        }
    }
  }

  /* Take away scores of positions that are not seen. */
  void see(const Attention& a, int start, int n, float* scores) const {
    if (start < all.low || start + n > all.high)
      for (int i = 0; i < n; i++)
        for (int w = 0; w < W; w++) {
          float* at = scores + i * ALL + w * LANES;
          const F from = set(static_cast<float>(start + i - any.low));
          const F to = set(static_cast<float>(start + i - any.high));
          const F seen = select_less(to, load(high + w * LANES), load(at), set(NEVER));
          store(at, select_less(from, load(low + w * LANES), set(NEVER), seen));
        }
    if (a.mask == nullptr) return;
    for (int lane = 0; lane < (count + DEEP - 1) / DEEP * DEEP; lane++)
      for (int i = 0; i < n; i++) {
        float& at = scores[i * ALL + lane];
        at = with_mask(a, head[lane], t[lane], start + i, at);
      }
  }

  /* Turn scores into weights. */
  void weigh(int n, float* scores) {
    F even[W], odd[W]; /* apart, so that one need not wait for the other */
    for (int w = 0; w < W; w++) even[w] = odd[w] = largest[w];
    const auto look = [=](F(&most)[W], int i) {
      for (int w = 0; w < W; w++) most[w] = max(most[w], load(scores + i * ALL + w * LANES));
    };
    int i = 0;
    for (; i + 2 <= n; i += 2) {
      look(even, i);
      look(odd, i + 1);
    }
    if (i < n) look(even, i);
    for (int w = 0; w < W; w++) {
      float* own = scores + w * LANES;
      const F most = max(even[w], odd[w]);
      const F shrunk = exp(largest[w] - most);
      store(kept + w * LANES, shrunk);
      largest[w] = most;
      F sum = zero();
      for (int i = 0; i < n; i++) {
        const F weight = exp(load(own + i * ALL) - most);
        store(own + i * ALL, weight);
        sum = sum + weight;
      }
      total[w] = fma(total[w], shrunk, sum);
    }
  }
};

/* Where queries' results lie, and the weights of a tile: [position][query]. */
struct Mixed {
  float* const* out;
  const float* kept;
  const float* weights;
  int queries, all; /* in use; of a row of weights */
};

/* out = out * kept + sum over positions of weight * value, of N queries from `query` on, and W
 * vectors of dims from d on. */
template <int N, int W>
COWMLX_INLINE void mix(const Mixed& to, int query, const Tile& values, int n, int d, int lanes) {
  const float* weights = to.weights + query;
  F sums[N][W];
  for (int i = 0; i < N; i++)
    for (int w = 0; w < W; w++)
      sums[i][w] = get(to.out[query + i] + d + w * LANES, lanes) * set(to.kept[query + i]);
  outer([&](int i, int k) { return weights[i + int64_t{k} * to.all]; }, values.data + d,
        values.stride, lanes, n, sums);
  for (int i = 0; i < N; i++)
    for (int w = 0; w < W; w++) put(to.out[query + i] + d + w * LANES, sums[i][w], lanes);
}

/* All queries, a few at a time; lanes behind the last one write what it does. */
template <int W>
COWMLX_INLINE void mix_queries(const Mixed& to, const Tile& values, int n, int d, int lanes) {
  int query = 0;
  for (; query + DEEP / 2 < to.queries; query += DEEP) mix<DEEP, W>(to, query, values, n, d, lanes);
  if (query < to.queries) mix<DEEP / 2, W>(to, query, values, n, d, lanes);
}

/* Apart, since tiles of all sizes use it. */
static __attribute__((noinline, flatten)) void mix_values(const Mixed& to, const Tile& values,
                                                          int n, int dim) {
  int d = 0;
  for (; d + WIDE * LANES <= dim; d += WIDE * LANES) mix_queries<WIDE>(to, values, n, d, LANES);
  for (; d + LANES <= dim; d += LANES) mix_queries<1>(to, values, n, d, LANES);
  if (d < dim) mix_queries<1>(to, values, n, d, dim - d);
}

/* Up to W vectors of queries: numbers [row, row_end) of t * heads + head. */
template <int W>
COWMLX_INLINE void attend_tile(const Attention& a, int64_t row, int64_t row_end, float* scratch) {
  float* turned = scratch;
  float* scores = turned + int64_t{a.key_dim} * QUERIES;
  float* room = scores + TILE * QUERIES;
  Queries<W> q(a, row, row_end, turned);
  const Mixed mixed{q.out, q.kept, scores, q.count, q.ALL};
  for (int start = tile_start(a, q.any.low); start < q.any.high; start += TILE) {
    const int n = q.any.high - start < TILE ? q.any.high - start : TILE;
    q.score(a, tile_of(a.keys, start, n, a.key_dim, room), n, turned, scores);
    q.see(a, start, n, scores);
    q.weigh(n, scores);
    mix_values(mixed, tile_of(a.values, start, n, a.value_dim, room), n, a.value_dim);
  }
  for (int w = 0; w < W; w++) store(q.kept + w * LANES, share_of(q.total[w]));
  for (int lane = 0; lane < q.count; lane++) {
    const F share = set(q.kept[lane]);
    float* out = q.out[lane];
    each_vector(a.value_dim,
                [=](int d, int lanes) { put(out + d, get(out + d, lanes) * share, lanes); });
  }
}

static size_t attention_size(int key_dim, int value_dim) {
  size_t room = TILE * static_cast<size_t>(key_dim > value_dim ? key_dim : value_dim);
  size_t many = static_cast<size_t>(key_dim) * QUERIES + TILE * QUERIES + room;
  size_t few = FEW * TILE + room;
  return (many > few ? many : few) + LANES;
}

COWMLX_KERNEL void attention(const Attention& a) {
  if (a.queries < 1 || a.heads < 1) return;
  float* scratch = aligned(a.scratch);
  if (a.queries <= FEW_QUERIES && a.heads <= FEW_HEADS) return attend_few(a, scratch);
  const int64_t rows = static_cast<int64_t>(a.queries) * a.heads;
  int64_t row = 0;
  for (; row + LANES < rows; row += QUERIES)
    attend_tile<WIDE>(a, row, row + QUERIES < rows ? row + QUERIES : rows, scratch);
  if (row < rows) attend_tile<1>(a, row, rows, scratch);
}

}  // namespace cowmlx::ISA
