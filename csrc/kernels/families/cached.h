/* Keys and values as they lie in a cache, read as float32. */
#pragma once

#include "rows.h"

namespace cowmlx::ISA {

COWMLX_INLINE float scalar_at(const void* p, Scalar type, int64_t i) {
  if (type == Scalar::Float32) return static_cast<const float*>(p)[i];
  uint16_t half = static_cast<const uint16_t*>(p)[i];
  return type == Scalar::Float16 ? from_float16(half) : from_bfloat16(half);
}

/* n numbers from position `position` of a quantized cache on. */
COWMLX_INLINE void load_quantized(const Cache& cache, int64_t position, int n, float* to) {
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

struct Tile {
  const float* data; /* [position][dim] */
  int64_t stride;
};

/* Positions [from, end) that are read soon. They are prefetched into the second-level cache, a few
 * at a time between other work: requests for all at once would wait for each other. */
struct Upcoming {
  const char* row;
  int64_t stride, bytes;
  int count;

  Upcoming(const Cache& cache, int from, int end, int dim) : count(end - from) {
    const int64_t size = cache.bits ? 4 : static_cast<int64_t>(size_of(cache.type));
    stride = cache.position_stride * size;
    bytes = cache.bits ? int64_t{dim} * cache.bits / 8 : dim * size;
    row = static_cast<const char*>(cache.data) + from * stride;
  }

  __attribute__((always_inline)) void prefetch(int positions) {
    enum { LINE = 64, SECOND_LEVEL = 2 };
    for (; positions > 0 && count > 0; positions--, count--, row += stride)
      for (int64_t at = 0; at < bytes; at += LINE) __builtin_prefetch(row + at, 0, SECOND_LEVEL);
  }
};

/* Positions [from, from + n) as float32, where they lie or in `room`. */
COWMLX_INLINE Tile tile_of(const Cache& cache, int from, int n, int dim, float* room,
                           Upcoming* upcoming = nullptr) {
  if (cache.bits == 0 && cache.type == Scalar::Float32) {
    const float* data = static_cast<const float*>(cache.data);
    return {data + from * cache.position_stride, cache.position_stride};
  }
  for (int i = 0; i < n; i++) {
    int64_t position = from + i;
    float* to = room + static_cast<int64_t>(i) * dim;
    if (upcoming) upcoming->prefetch(1);
    if (cache.bits)
      load_quantized(cache, position, dim, to);
    else
      load_numbers(static_cast<const uint16_t*>(cache.data) + position * cache.position_stride,
                   cache.type, dim, to);
  }
  return {room, dim};
}

}  // namespace cowmlx::ISA
