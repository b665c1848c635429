/* Keys and values into mlx's packing; meanings in table.h. The including file has chosen an
 * instruction set. */
#pragma once

#include "rows.h"

namespace cowmlx::ISA {

/* One group of numbers: a word's numbers lie lowest first. */
COWMLX_INLINE void pack_group(const float* x, int n, int bits, uint8_t* to, float* scale_out,
                              float* bias_out) {
  const float most = static_cast<float>((1 << bits) - 1), least_step = 1e-7f;
  F low = set(__builtin_inff()), high = set(-__builtin_inff());
  for (int i = 0; i < n; i += LANES) { /* a NaN in front counts for nothing */
    low = min(load(x + i), low);
    high = max(load(x + i), high);
  }
  const float smallest = -highest(zero() - low), largest = highest(high);
  /* The end that is farther from 0 is kept as it is, and 0 is one of the steps. */
  const bool below = __builtin_fabsf(smallest) > __builtin_fabsf(largest);
  const float step = (largest - smallest) / most, edge = below ? smallest : largest;
  float scale = step < least_step ? least_step : step, bias = 0;
  if (!below) scale = -scale;
  const float steps = __builtin_rintf(edge / scale);
  if (steps != 0) {
    scale = edge / steps;
    bias = edge;
  }
  const auto numbers = [=](int i) {
    const F number = (load(x + i) - set(bias)) / set(scale);
    return round(min(max(number, zero()), set(most)));
  };
  for (int i = 0; i < n; i += LANES)
    if (bits == 8) {
      store_bytes(to + i, numbers(i));
    } else {
      uint8_t bytes[LANES];
      store_bytes(bytes, numbers(i));
      for (int k = 0; k < LANES; k += 2)
        to[(i + k) / 2] = static_cast<uint8_t>(bytes[k] | bytes[k + 1] << 4);
    }
  *scale_out = scale;
  *bias_out = bias;
}

COWMLX_KERNEL void pack_numbers(const float* from, int n, int bits, int group, void* words,
                                void* scales, void* biases, Scalar type) {
  uint8_t* to = static_cast<uint8_t*>(words);
  for (int at = 0, start = 0; start < n; at++, start += group) {
    const float* numbers = from + start;
    float rounded[MOST_PACKED_GROUP];
    uint16_t halves[MOST_PACKED_GROUP];
    if (type != Scalar::Float32) {
      store_numbers(numbers, group, halves, type);
      load_numbers(halves, type, group, rounded);
      numbers = rounded;
    }
    float scale, bias;
    pack_group(numbers, group, bits, to + start * bits / 8, &scale, &bias);
    if (type == Scalar::Float32) {
      static_cast<float*>(scales)[at] = scale;
      static_cast<float*>(biases)[at] = bias;
    } else {
      const bool brain = type == Scalar::BFloat16;
      static_cast<uint16_t*>(scales)[at] = brain ? to_bfloat16(scale) : to_float16(scale);
      static_cast<uint16_t*>(biases)[at] = brain ? to_bfloat16(bias) : to_float16(bias);
    }
  }
}

}  // namespace cowmlx::ISA
