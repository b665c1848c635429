/* Attention whose gradient is computed, too; meanings in table.h. The including file has chosen an
 * instruction set. */
#pragma once

#include "attention.h"

namespace cowmlx::ISA {

/* Queries whose scores are computed together. */
constexpr int BAND = 32;

/* c[i][j] = sum over k of a[i][k] * b[k][j], or that is added to c. Rows of b and c lie side by
 * side; a may lie in any order. */
struct SmallProduct {
  const float* a;
  int64_t a_row, a_step; /* from a[i] to a[i + 1], from a[][k] to a[][k + 1] */
  const float* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
  int rows, columns, count;
  bool adds;
};

/* Up to N rows and W vectors of the result. */
template <int N, int W>
COWMLX_INLINE void multiply_part(const SmallProduct& p, int row, int column, int lanes) {
  const float* from[N];
  for (int i = 0; i < N; i++) from[i] = p.a + (row + i < p.rows ? row + i : p.rows - 1) * p.a_row;
  F sums[N][W];
  for (int i = 0; i < N; i++)
    for (int w = 0; w < W; w++) sums[i][w] = zero();
  outer([&](int i, int k) { return from[i][k * p.a_step]; }, p.b + column, p.b_row, lanes, p.count,
        sums);
  for (int i = 0; i < N; i++) {
    if (row + i >= p.rows) break;
    for (int w = 0; w < W; w++) {
      float* to = p.c + (row + i) * p.c_row + column + w * LANES;
      put(to, p.adds ? get(to, lanes) + sums[i][w] : sums[i][w], lanes);
    }
  }
}

COWMLX_KERNEL __attribute__((noinline)) void multiply(const SmallProduct& p) {
  for (int row = 0; row < p.rows; row += DEEP) {
    int column = 0;
    for (; column + QUERIES <= p.columns; column += QUERIES)
      multiply_part<DEEP, WIDE>(p, row, column, LANES);
    for (; column + LANES <= p.columns; column += LANES)
      multiply_part<DEEP, 1>(p, row, column, LANES);
    if (column < p.columns) multiply_part<DEEP, 1>(p, row, column, p.columns - column);
  }
}

/* How far the transpose of `rows` rows has its rows apart. */
COWMLX_INLINE int pitch_of(int rows) { return (rows + 3) / 4 * 4; }

/* to[k][m] = from[m][k] */
COWMLX_INLINE void transpose(const Heads& from, int rows, int columns, float* to) {
  for (int row = 0; row < rows; row += 4) {
    const float* four[4];
    for (int m = 0; m < 4; m++)
      four[m] = from.data + (row + m < rows ? row + m : rows - 1) * from.row;
    beside_rows(four, columns, pitch_of(rows), to + row);
  }
}

COWMLX_KERNEL size_t trained_attention_size(int positions, int key_dim, int value_dim) {
  const auto pitch = static_cast<size_t>(pitch_of(positions));
  return pitch * static_cast<size_t>(key_dim + value_dim + 2 * BAND);
}

/* Put a number where a mask of bool, or causality, hides positions from a query. */
COWMLX_INLINE void hide(const TrainedAttention& a, int head, int query, float number, float* row) {
  if (a.causal) {
    const int64_t seen = int64_t{query} + 1 + a.positions - a.queries;
    for (int64_t i = seen > 0 ? seen : 0; i < a.positions; i++) row[i] = number;
  }
  if (a.mask == nullptr || !a.mask_bool) return;
  const bool* mask = static_cast<const bool*>(a.mask) + head * a.mask_head + query * a.mask_row;
  for (int i = 0; i < a.positions; i++)
    if (!mask[i * a.mask_position]) row[i] = number;
}

/* weights[query][position] of queries [from, from + count); `keys` are transposed. */
COWMLX_INLINE void weights_of(const TrainedAttention& a, int head, int from, int count,
                              const float* keys, float* weights) {
  const int n = a.positions;
  multiply({a.q.data + head * a.q.head + from * a.q.row, a.q.row, 1, keys, pitch_of(n), weights, n,
            count, n, a.key_dim, false});
  for (int query = from; query < from + count; query++, weights += n) {
    each_vector(n, [=](int i, int lanes) {
      put(weights + i, get(weights + i, lanes) * set(a.scale), lanes);
    });
    hide(a, head, query, LOWEST, weights);
    if (a.mask != nullptr && !a.mask_bool) {
      const float* mask =
          static_cast<const float*>(a.mask) + head * a.mask_head + query * a.mask_row;
      for (int i = 0; i < n; i++) weights[i] += mask[i * a.mask_position];
    }
    softmax(weights, n, weights);
  }
}

COWMLX_KERNEL void trained_attention(const TrainedAttention& a, const HeadsTo& out) {
  const int n = a.positions;
  float *keys = a.scratch, *weights = keys + int64_t{a.key_dim} * pitch_of(n);
  transpose(a.k, n, a.key_dim, keys);
  for (int head = 0; head < a.heads; head++)
    for (int from = 0; from < a.queries; from += BAND) {
      const int count = a.queries - from < BAND ? a.queries - from : BAND;
      weights_of(a, head, from, count, keys, weights);
      multiply({weights, n, 1, a.v.data, a.v.row, out.data + head * out.head + from * out.row,
                out.row, count, a.value_dim, n, false});
    }
}

/* Turn gradients of weights into those of scores before they are scaled. */
COWMLX_INLINE void through_softmax(const TrainedAttention& a, int head, int from, int count,
                                   const float* weights, float* slopes) {
  const int n = a.positions;
  for (int query = from; query < from + count; query++, weights += n, slopes += n) {
    const float along = sum_of(n, [=](int i, int lanes, F so_far) {
      return fma(get(weights + i, lanes), get(slopes + i, lanes), so_far);
    });
    each_vector(n, [=](int i, int lanes) {
      const F weight = get(weights + i, lanes), slope = get(slopes + i, lanes);
      put(slopes + i, weight * (slope - set(along)) * set(a.scale), lanes);
    });
    hide(a, head, query, 0, slopes);
  }
}

COWMLX_KERNEL void attention_gradient(const TrainedAttention& a, const AttentionGradient& to) {
  const int n = a.positions, pitch = pitch_of(n);
  float *keys = a.scratch, *values = keys + int64_t{a.key_dim} * pitch;
  float *weights = values + int64_t{a.value_dim} * pitch, *slopes = weights + int64_t{BAND} * pitch;
  transpose(a.k, n, a.key_dim, keys);
  transpose(a.v, n, a.value_dim, values);
  for (int head = 0; head < a.heads; head++)
    for (int from = 0; from < a.queries; from += BAND) {
      const int count = a.queries - from < BAND ? a.queries - from : BAND;
      const bool adds = head > 0 || from > 0;
      const float* q = a.q.data + head * a.q.head + from * a.q.row;
      const float* by = to.by.data + head * to.by.head + from * to.by.row;
      weights_of(a, head, from, count, keys, weights);
      multiply({weights, 1, n, by, to.by.row, to.v.data, to.v.row, n, a.value_dim, count, adds});
      multiply({by, to.by.row, 1, values, pitch, slopes, n, count, n, a.value_dim, false});
      through_softmax(a, head, from, count, weights, slopes);
      multiply({slopes, n, 1, a.k.data, a.k.row, to.q.data + head * to.q.head + from * to.q.row,
                to.q.row, count, a.key_dim, n, false});
      multiply({slopes, 1, n, q, a.q.row, to.k.data, to.k.row, n, a.key_dim, count, adds});
    }
}

}  // namespace cowmlx::ISA
