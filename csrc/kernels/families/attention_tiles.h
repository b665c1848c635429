/* What both forms of attention share: tiles of keys and values as float32, and what a query sees.
 * The including file has chosen an instruction set. */
#pragma once

#include "rows.h"

namespace cowmlx::ISA {

/* Positions whose scores are computed, turned into weights and used up together: their keys and
 * values stay in the nearest cache. Tiles start at the first valid position, so that a row of a
 * batch is cut in the same places whatever its padding. */
constexpr int TILE = 64;

/* Below every score, and finite: what minus infinity is subtracted from. */
constexpr float LOWEST = -3.402823466e+38f;
constexpr float NEVER = -__builtin_inff();

COWMLX_INLINE float scalar_at(const void* p, Scalar type, int64_t i) {
  if (type == Scalar::Float32) return static_cast<const float*>(p)[i];
  uint16_t half = static_cast<const uint16_t*>(p)[i];
  return type == Scalar::Float16 ? from_float16(half) : from_bfloat16(half);
}

/* n numbers from position `position` of a packed cache on. */
COWMLX_INLINE void unpack_position(const Cache& cache, int64_t position, int n, float* to) {
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(static_cast<const uint32_t*>(cache.data) +
                                                          position * cache.position_stride);
  int64_t at = position * cache.scale_position_stride;
  for (int start = 0; start < n; start += cache.group, at++) {
    float scale = scalar_at(cache.scales, cache.scale_type, at);
    float bias = scalar_at(cache.biases, cache.scale_type, at);
    int end = start + cache.group;
    if (cache.bits == 8) {
      for (int i = start; i < end; i += LANES)
        store(to + i, fma(convert(load_bytes(bytes + i)), set(scale), set(bias)));
    } else {
      for (int i = start; i < end; i += LANES)
        store(to + i, fma(convert(load_nibbles(bytes + i / 2)), set(scale), set(bias)));
    }
  }
}

/* Where a line of the nearest cache begins: a vector that lies across two is read in twice the
 * time. */
COWMLX_INLINE float* aligned(float* p) {
  constexpr uintptr_t LINE = LANES * sizeof(float);
  return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(p) + LINE - 1) / LINE * LINE);
}

struct Tile {
  const float* data; /* [position][dim] */
  int64_t stride;
};

/* Positions [from, from + n) as float32, where they lie or in `room`. */
COWMLX_INLINE Tile tile_of(const Cache& cache, int from, int n, int dim, float* room) {
  if (cache.bits == 0 && cache.type == Scalar::Float32) {
    const float* data = static_cast<const float*>(cache.data);
    return {data + from * cache.position_stride, cache.position_stride};
  }
  for (int i = 0; i < n; i++) {
    int64_t position = from + i;
    float* to = room + static_cast<int64_t>(i) * dim;
    if (cache.bits)
      unpack_position(cache, position, dim, to);
    else
      load_numbers(static_cast<const uint16_t*>(cache.data) + position * cache.position_stride,
                   cache.type, dim, to);
  }
  return {room, dim};
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

}  // namespace cowmlx::ISA
