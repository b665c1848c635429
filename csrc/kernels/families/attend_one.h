/* Attention of one query for each of a few heads over plain numbers, as in decoding. Keys and
 * values are read once for all heads, and those of 16 bits become float32 in registers;
 * attend_few(), which has the same results, writes them to memory first. For sets with at least
 * eight registers of 16 lanes. */
#pragma once

#include <type_traits>

#include "attend_few.h"
#include "numbers.h"

namespace cowmlx::ISA {

constexpr int ONE_HEADS = 4; /* at most */

/* How much one loop computes, so that its sums stay in registers: the scores of so many positions;
 * or so many vectors of the result, for so many heads. */
template <int HEADS>
struct Fitting {
  static constexpr bool MANY = VECTORS >= 32;
  static constexpr int POSITIONS = MANY || HEADS == 1 ? 4 : HEADS < ONE_HEADS ? 2 : 1;
  static constexpr int VALUES = MANY ? (HEADS < ONE_HEADS ? 4 : 2) : HEADS == 1 ? 2 : 1;
  static constexpr int MIXED = MANY || HEADS < ONE_HEADS ? HEADS : HEADS / 2;
};

/* Not inlined: attend_one() of all types and numbers of heads shares them. */
static __attribute__((noinline, flatten)) Seen begin_one(const Attention& a, Query* queries) {
  return begin_queries(a, queries);
}
static __attribute__((noinline, flatten)) void weigh_one(const Attention& a, Query& q, int start,
                                                         float* scores) {
  weigh(a, q, start, scores);
}
static __attribute__((noinline, flatten)) void end_one(const Attention& a, const Query* queries,
                                                       int count) {
  end_queries(a, queries, count);
}

/* Memory that is read position by position, `bytes` of each: `here`, then `next`, unless that is
 * null. It is prefetched shortly before it is read: earlier requests would keep loads waiting. */
struct Reading {
  static constexpr int64_t AHEAD = 2 << 10, MOST = 16, LEAST = 4, LINE = 64; /* bytes, positions */

  const char *here, *next;
  int64_t stride, next_stride, bytes;
  int positions, ahead;

  Reading(const char* here, int64_t stride, const char* next, int64_t next_stride, int64_t bytes,
          int positions, int64_t whole)
      : here(here),
        next(next),
        stride(stride),
        next_stride(next_stride),
        bytes(bytes),
        positions(positions) {
    const int64_t fit = AHEAD / whole;
    ahead = static_cast<int>(fit < LEAST ? LEAST : fit > MOST ? MOST : fit);
  }

  /* Prefetch for a caller that reads positions i … i + count - 1 now. */
  __attribute__((always_inline)) void ask(int i, int count) const {
    for (int at = i + ahead; at < i + ahead + count; at++) {
      const bool later = at >= positions;
      if (later && next == nullptr) return;
      const char* from = later ? next + (at - positions) * next_stride : here + at * stride;
      for (int64_t byte = 0; byte < bytes; byte += LINE) __builtin_prefetch(from + byte);
    }
  }
};

template <Scalar TYPE>
using Number = std::conditional_t<TYPE == Scalar::Float32, float, uint16_t>;

template <Scalar TYPE>
COWMLX_INLINE F widened(const Number<TYPE>* p) {
  if constexpr (TYPE == Scalar::Float32)
    return load(p);
  else if constexpr (TYPE == Scalar::Float16)
    return load_float16(p);
  else
    return load_bfloat16(p);
}

/* scores[head][i] = query . key of position i, for N positions. */
template <Scalar TYPE, int HEADS, int N>
COWMLX_INLINE void head_dots(const Query* queries, const Number<TYPE>* keys, int64_t stride,
                             int dim, float* scores) {
  F sums[HEADS][N];
  for (int head = 0; head < HEADS; head++)
    for (int i = 0; i < N; i++) sums[head][i] = zero();
  for (int d = 0; d < dim; d += LANES)
    for (int i = 0; i < N; i++) {
      const F key = widened<TYPE>(keys + i * stride + d);
      for (int head = 0; head < HEADS; head++)
        sums[head][i] = fma(load(queries[head].query + d), key, sums[head][i]);
    }
  for (int head = 0; head < HEADS; head++)
    if constexpr (N == 4)
      ISA::sums(sums[head], scores + head * TILE);
    else
      for (int i = 0; i < N; i++) scores[head * TILE + i] = sum(sums[head][i]);
}

/* mix() of all heads, N vectors from number d on. */
template <Scalar TYPE, int HEADS, int N>
COWMLX_INLINE void mix_heads(const Query* queries, const float* weights, const Number<TYPE>* values,
                             int64_t stride, int positions, int d, const Reading& reading) {
  F even[HEADS][N], odd[HEADS][N];
  for (int head = 0; head < HEADS; head++)
    for (int k = 0; k < N; k++) {
      even[head][k] = load(queries[head].out + d + k * LANES) * queries[head].kept;
      odd[head][k] = zero();
    }
  const auto add = [=](F(&sums)[HEADS][N], int i) __attribute__((always_inline)) {
    F value[N];
    for (int k = 0; k < N; k++) value[k] = widened<TYPE>(values + i * stride + d + k * LANES);
    for (int head = 0; head < HEADS; head++) {
      const F weight = set(weights[head * TILE + i]);
      for (int k = 0; k < N; k++) sums[head][k] = fma(weight, value[k], sums[head][k]);
    }
  };
  int i = 0;
  for (; i + 2 <= positions; i += 2) {
    reading.ask(i, 2);
    add(even, i);
    add(odd, i + 1);
  }
  if (i < positions) add(even, i);
  for (int head = 0; head < HEADS; head++)
    for (int k = 0; k < N; k++)
      store(queries[head].out + d + k * LANES, even[head][k] + odd[head][k]);
}

/* Positions [from, end) of a tile; `then`: the keys that are read behind it, or null. */
template <Scalar TYPE, int HEADS>
COWMLX_INLINE void attend_tile_of_one(const Attention& a, Query* queries, int start, int from,
                                      int end, const Number<TYPE>* then, float* scores) {
  constexpr auto SIZE = static_cast<int64_t>(sizeof(Number<TYPE>));
  const int positions = end - from, key_dim = a.key_dim, value_dim = a.value_dim;
  const int64_t key_stride = a.keys.position_stride, value_stride = a.values.position_stride;
  const Number<TYPE>* keys = static_cast<const Number<TYPE>*>(a.keys.data) + from * key_stride;
  const Number<TYPE>* values =
      static_cast<const Number<TYPE>*>(a.values.data) + from * value_stride;
  const auto bytes = [](const Number<TYPE>* p) { return reinterpret_cast<const char*>(p); };
  const Reading reading(bytes(keys), key_stride * SIZE, bytes(values), value_stride * SIZE,
                        key_dim * SIZE, positions, key_dim * SIZE);
  float* own = scores + from - start;
  using Fit = Fitting<HEADS>;
  int i = 0;
  for (; i + Fit::POSITIONS <= positions; i += Fit::POSITIONS) {
    reading.ask(i, Fit::POSITIONS);
    head_dots<TYPE, HEADS, Fit::POSITIONS>(queries, keys + i * key_stride, key_stride, key_dim,
                                           own + i);
  }
  for (; i < positions; i++)
    head_dots<TYPE, HEADS, 1>(queries, keys + i * key_stride, key_stride, key_dim, own + i);
  for (int head = 0; head < HEADS; head++) {
    queries[head].from = from - start;
    queries[head].to = end - start;
    weigh_one(a, queries[head], start, scores + head * TILE);
  }
  const auto mix = [&](auto vectors, int d) __attribute__((always_inline)) {
    constexpr int N = decltype(vectors)::value;
    const Number<TYPE>* next = then == nullptr || d >= key_dim ? nullptr : then + d;
    const Reading reading(bytes(values + d), value_stride * SIZE, bytes(next), key_stride * SIZE,
                          N * LANES * SIZE, positions, value_dim * SIZE);
    for (int head = 0; head < HEADS; head += Fit::MIXED)
      mix_heads<TYPE, Fit::MIXED, N>(queries + head, own + head * TILE, values, value_stride,
                                     positions, d, reading);
  };
  int d = 0;
  if constexpr (Fit::VALUES >= 4)
    for (; d + 4 * LANES <= value_dim; d += 4 * LANES) mix(Constant<4>{}, d);
  if constexpr (Fit::VALUES >= 2)
    for (; d + 2 * LANES <= value_dim; d += 2 * LANES) mix(Constant<2>{}, d);
  for (; d < value_dim; d += LANES) mix(Constant<1>{}, d);
}

template <Scalar TYPE, int HEADS>
static __attribute__((noinline, flatten)) void attend_one(const Attention& a, float* scratch) {
  Query queries[HEADS];
  const Seen seen = begin_one(a, queries);
  for (int i = 0; i < HEADS * TILE; i += LANES) store(scratch + i, zero());
  for (int start = tile_start(a, seen.low); start < seen.high; start += TILE) {
    const int from = start < seen.low ? seen.low : start;
    const int end = seen.high < start + TILE ? seen.high : start + TILE;
    const auto* keys =
        static_cast<const Number<TYPE>*>(end < seen.high ? a.keys.data : a.next_keys);
    const int next = end < seen.high ? end : seen.low;
    if (keys != nullptr) keys += next * a.keys.position_stride;
    attend_tile_of_one<TYPE, HEADS>(a, queries, start, from, end, keys, scratch);
  }
  end_one(a, queries, HEADS);
}

COWMLX_INLINE bool is_one(const Attention& a) {
  return attends_to_one && a.queries == 1 && a.heads <= ONE_HEADS && a.keys.bits == 0 &&
         a.values.bits == 0 && a.keys.type == a.values.type && a.key_dim % LANES == 0 &&
         a.value_dim % LANES == 0;
}

template <Scalar TYPE>
COWMLX_INLINE void attend_heads(const Attention& a, float* scratch) {
  switch (a.heads) {
    case 1:
      return attend_one<TYPE, 1>(a, scratch);
    case 2:
      return attend_one<TYPE, 2>(a, scratch);
    case 3:
      return attend_one<TYPE, 3>(a, scratch);
    default:
      return attend_one<TYPE, ONE_HEADS>(a, scratch);
  }
}

COWMLX_INLINE void attend_one(const Attention& a, float* scratch) {
  if (a.keys.type == Scalar::Float32)
    attend_heads<Scalar::Float32>(a, scratch);
  else if (a.keys.type == Scalar::Float16)
    attend_heads<Scalar::Float16>(a, scratch);
  else
    attend_heads<Scalar::BFloat16>(a, scratch);
}

}  // namespace cowmlx::ISA
