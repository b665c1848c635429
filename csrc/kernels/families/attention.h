/* Attention over a cache; meanings in table.h. The including file has chosen an instruction set. */
#pragma once

#include "attend_one.h"

namespace cowmlx::ISA {

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
  if constexpr (VECTORS >= 8)
    if (is_one(a)) return attend_one(a, scratch);
  if (a.queries <= FEW_QUERIES && a.heads <= FEW_HEADS) return attend_few(a, scratch);
  const int64_t rows = static_cast<int64_t>(a.queries) * a.heads;
  int64_t row = 0;
  for (; row + LANES < rows; row += QUERIES)
    attend_tile<WIDE>(a, row, row + QUERIES < rows ? row + QUERIES : rows, scratch);
  if (row < rows) attend_tile<1>(a, row, rows, scratch);
}

}  // namespace cowmlx::ISA
