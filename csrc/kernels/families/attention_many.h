/* Attention of many queries, as in prompts: 16 lanes hold 16 queries, so that keys and values are
 * read number by number for all of them, and softmax needs no sums across lanes. The scores of a
 * tile are used up before the next one's are computed (arXiv 1805.02867). The including file has
 * chosen an instruction set. */
#pragma once

#include "attention_tiles.h"

namespace cowmlx::ISA {

/* Vectors of queries, and rows of keys or values, whose sums stay in registers. */
constexpr int WIDE = VECTORS >= 32 ? 2 : 1;
constexpr int DEEP = VECTORS >= 32 ? 8 : 4;
constexpr int QUERIES = WIDE * LANES;

/* sums[i] += a[i][k * step] * b[k], for every k, where b[k] is QUERIES numbers. */
template <int N>
COWMLX_INLINE void outer(const float* const (&a)[N], int64_t step, const float* b, int count,
                         F (&sums)[N][WIDE]) {
  for (int k = 0; k < count; k++) {
    F lanes[WIDE];
    for (int w = 0; w < WIDE; w++)
      lanes[w] = load(b + static_cast<int64_t>(k) * QUERIES + w * LANES);
    for (int i = 0; i < N; i++) {
      F number = set(a[i][k * step]);
      for (int w = 0; w < WIDE; w++) sums[i][w] = fma(number, lanes[w], sums[i][w]);
    }
  }
}

/* A vector of queries between tiles. */
struct Queries {
  F largest[WIDE], total[WIDE]; /* of the scores so far; of e^(score - largest) */
  F kept[WIDE];                 /* by which the last tile has shrunk what was before it */
  F low[WIDE], high[WIDE];      /* what each sees, as numbers */
};

/* scores[position][query] of a tile's n positions. */
COWMLX_INLINE void score(const Attention& a, const Tile& keys, int n, const float* queries,
                         float* scores) {
  for (int i = 0; i < n; i += DEEP) {
    const float* rows[DEEP];
    for (int k = 0; k < DEEP; k++) rows[k] = keys.data + (i + k < n ? i + k : n - 1) * keys.stride;
    F sums[DEEP][WIDE];
    for (int k = 0; k < DEEP; k++)
      for (int w = 0; w < WIDE; w++) sums[k][w] = zero();
    outer<DEEP>(rows, 1, queries, a.key_dim, sums);
    for (int k = 0; k < DEEP; k++)
      for (int w = 0; w < WIDE; w++) {
        F x = a.soft_cap > 0 ? capped(sums[k][w], a.soft_cap) : sums[k][w];
        store(scores + (i + k) * QUERIES + w * LANES, x);
      }
  }
}

/* Turn scores into weights. */
COWMLX_INLINE void weigh(Queries& q, int n, float* scores) {
  for (int w = 0; w < WIDE; w++) {
    float* own = scores + w * LANES;
    F largest = q.largest[w];
    for (int i = 0; i < n; i++) largest = max(largest, load(own + i * QUERIES));
    q.kept[w] = exp(q.largest[w] - largest);
    q.largest[w] = largest;
    F total = zero();
    for (int i = 0; i < n; i++) {
      F weight = exp(load(own + i * QUERIES) - largest);
      store(own + i * QUERIES, weight);
      total = total + weight;
    }
    q.total[w] = fma(q.total[w], q.kept[w], total);
  }
}

/* out[dim][query] = out * kept + sum over positions of weight * value, for N dims. */
template <int N>
COWMLX_INLINE void mix(const float* values, int64_t stride, int n, const float* weights,
                       const Queries& q, float* out) {
  F sums[N][WIDE];
  const float* columns[N];
  for (int i = 0; i < N; i++) {
    columns[i] = values + i;
    for (int w = 0; w < WIDE; w++) sums[i][w] = load(out + i * QUERIES + w * LANES) * q.kept[w];
  }
  outer<N>(columns, stride, weights, n, sums);
  for (int i = 0; i < N; i++)
    for (int w = 0; w < WIDE; w++) store(out + i * QUERIES + w * LANES, sums[i][w]);
}

/* Up to QUERIES queries: numbers [row, row_end) of t * heads + head. */
COWMLX_INLINE void attend_tile(const Attention& a, int64_t row, int64_t row_end, float* scratch) {
  float* queries = scratch;                                         /* [key dim][query] */
  float* out = queries + static_cast<int64_t>(a.key_dim) * QUERIES; /* [value dim][query] */
  float* scores = out + static_cast<int64_t>(a.value_dim) * QUERIES;
  float* room = scores + TILE * QUERIES;

  float low[QUERIES], high[QUERIES], sinks[QUERIES];
  int lowest = a.end, highest = a.first, all_from = a.first, all_to = a.end;
  for (int lane = 0; lane < QUERIES; lane++) {
    /* Lanes behind the last query do what it does. */
    int64_t r = row + lane < row_end ? row + lane : row_end - 1;
    int t = static_cast<int>(r / a.heads), head = static_cast<int>(r % a.heads);
    const float* query = a.query + head * a.query_head_stride + t * a.query_stride;
    for (int d = 0; d < a.key_dim; d++) queries[d * QUERIES + lane] = query[d] * a.scale;
    Seen seen = seen_by(a, t);
    low[lane] = static_cast<float>(seen.low);
    high[lane] = static_cast<float>(seen.high);
    sinks[lane] = a.sinks ? a.sinks[head] : LOWEST;
    if (seen.low < lowest) lowest = seen.low;
    if (seen.high > highest) highest = seen.high;
    if (seen.low > all_from) all_from = seen.low;
    if (seen.high < all_to) all_to = seen.high;
  }
  Queries q;
  for (int w = 0; w < WIDE; w++) {
    q.low[w] = load(low + w * LANES);
    q.high[w] = load(high + w * LANES);
    q.largest[w] = load(sinks + w * LANES);
    q.total[w] = set(a.sinks ? 1.0f : 0.0f);
  }
  for (int64_t i = 0; i < static_cast<int64_t>(a.value_dim) * QUERIES; i += LANES)
    store(out + i, zero());

  for (int start = tile_start(a, lowest); start < highest; start += TILE) {
    int n = highest - start < TILE ? highest - start : TILE;
    score(a, tile_of(a.keys, start, n, a.key_dim, room), n, queries, scores);
    if (start < all_from || start + n > all_to)
      for (int i = 0; i < n; i++)
        for (int w = 0; w < WIDE; w++) {
          float* at = scores + i * QUERIES + w * LANES;
          F here = set(static_cast<float>(start + i));
          F seen = select_less(here, q.high[w], load(at), set(NEVER));
          store(at, select_less(here, q.low[w], set(NEVER), seen));
        }
    if (a.mask)
      for (int64_t r = row; r < row_end; r++)
        for (int i = 0; i < n; i++) {
          float& at = scores[i * QUERIES + (r - row)];
          at = with_mask(a, static_cast<int>(r % a.heads), static_cast<int>(r / a.heads), start + i,
                         at);
        }
    weigh(q, n, scores);
    Tile values = tile_of(a.values, start, n, a.value_dim, room);
    int d = 0;
    for (; d + DEEP <= a.value_dim; d += DEEP)
      mix<DEEP>(values.data + d, values.stride, n, scores, q, out + d * QUERIES);
    for (; d < a.value_dim; d++)
      mix<1>(values.data + d, values.stride, n, scores, q, out + d * QUERIES);
  }

  for (int w = 0; w < WIDE; w++) store(low + w * LANES, share_of(q.total[w]));
  for (int64_t r = row; r < row_end; r++) {
    int lane = static_cast<int>(r - row);
    float* to = a.out + (r % a.heads) * a.out_head_stride + (r / a.heads) * a.out_stride;
    for (int d = 0; d < a.value_dim; d++) to[d] = out[d * QUERIES + lane] * low[lane];
  }
}

}  // namespace cowmlx::ISA
