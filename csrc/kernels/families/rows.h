/* Functions of one row of numbers: norms, sums, gates, softmax, rotation, quantized groups, steps
 * of optimizers. Meanings in table.h. The including file has chosen an instruction set. */
#pragma once

#include "vectors.h"

#include "../table.h"

namespace cowmlx::ISA {

/* The sum of term(i, lanes) over n numbers, in four chains, since one would wait for itself. */
template <class Term>
COWMLX_INLINE float sum_of(int n, Term term) {
  F sums[4] = {zero(), zero(), zero(), zero()};
  int i = 0;
  for (; i + 4 * LANES <= n; i += 4 * LANES)
    for (int k = 0; k < 4; k++) sums[k] = term(i + k * LANES, LANES, sums[k]);
  for (; i + LANES <= n; i += LANES) sums[0] = term(i, LANES, sums[0]);
  if (i < n) sums[1] = term(i, n - i, sums[1]);
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

COWMLX_INLINE float squares(const float* x, int n) {
  return sum_of(n, [x](int i, int lanes, F so_far) {
    F v = get(x + i, lanes);
    return fma(v, v, so_far);
  });
}

COWMLX_KERNEL void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  F factor = set(1.0f / __builtin_sqrtf(squares(x, n) / static_cast<float>(n) + eps));
  each_vector(n, [=](int i, int lanes) {
    F v = get(x + i, lanes) * factor;
    if (weight) v = v * get(weight + i, lanes);
    put(y + i, v, lanes);
  });
}

COWMLX_KERNEL void layer_norm(const float* x, const float* weight, const float* bias, float eps,
                              int n, float* y) {
  float mean = sum_of(n, [x](int i, int lanes, F so_far) { return so_far + get(x + i, lanes); }) /
               static_cast<float>(n);
  /* Lanes behind the end would add the mean's square. */
  float variance = sum_of(n, [x, mean](int i, int lanes, F so_far) {
    F v = only(get(x + i, lanes) - set(mean), lanes);
    return fma(v, v, so_far);
  });
  F factor = set(1.0f / __builtin_sqrtf(variance / static_cast<float>(n) + eps));
  each_vector(n, [=](int i, int lanes) {
    F v = (get(x + i, lanes) - set(mean)) * factor;
    if (weight) v = v * get(weight + i, lanes);
    if (bias) v = v + get(bias + i, lanes);
    put(y + i, v, lanes);
  });
}

COWMLX_KERNEL void norm_gradient(bool centred, const float* x, const float* weight, const float* by,
                                 float eps, int n, float* of_x, float* along, float* total) {
  const float part = 1.0f / static_cast<float>(n);
  float mean = 0;
  if (centred)
    mean = part * sum_of(n, [x](int i, int lanes, F so_far) { return so_far + get(x + i, lanes); });
  const float variance = sum_of(n, [x, mean](int i, int lanes, F so_far) {
    F v = only(get(x + i, lanes) - set(mean), lanes);
    return fma(v, v, so_far);
  });
  const F factor = set(1.0f / __builtin_sqrtf(variance * part + eps));
  const auto normed = [=](int i, int lanes) { return (get(x + i, lanes) - set(mean)) * factor; };
  const auto weighed = [=](int i, int lanes) {
    F v = get(by + i, lanes);
    return weight ? v * get(weight + i, lanes) : v;
  };
  float level = 0;
  if (centred)
    level = sum_of(n, [=](int i, int lanes, F so_far) { return so_far + weighed(i, lanes); });
  const float slope = sum_of(n, [=](int i, int lanes, F so_far) {
    return fma(weighed(i, lanes), only(normed(i, lanes), lanes), so_far);
  });
  each_vector(n, [=](int i, int lanes) {
    const F v = normed(i, lanes), own = get(by + i, lanes), whole = weighed(i, lanes);
    put(along + i, fma(own, v, get(along + i, lanes)), lanes);
    put(total + i, get(total + i, lanes) + own, lanes);
    put(of_x + i, factor * fnma(v, set(slope * part), whole - set(level * part)), lanes);
  });
}

COWMLX_KERNEL void add(const float* a, const float* b, float scale, int n, float* y) {
  each_vector(n, [=](int i, int lanes) {
    put(y + i, fma(get(b + i, lanes), set(scale), get(a + i, lanes)), lanes);
  });
}

template <class Function>
COWMLX_INLINE void gate_with(const float* gate, const float* up, int n, float* y,
                             Function activation) {
  each_vector(n, [=](int i, int lanes) {
    F v = activation(get(gate + i, lanes));
    if (up) v = v * get(up + i, lanes);
    put(y + i, v, lanes);
  });
}

COWMLX_KERNEL void gate(Activation activation, const float* gate, const float* up, int n,
                        float* y) {
  switch (activation) {
    case Activation::Silu:
      return gate_with(gate, up, n, y, [](F x) { return silu(x); });
    case Activation::Gelu:
      return gate_with(gate, up, n, y, [](F x) { return gelu(x); });
    case Activation::GeluTanh:
      return gate_with(gate, up, n, y, [](F x) { return gelu_tanh(x); });
    case Activation::Relu:
      return gate_with(gate, up, n, y, [](F x) { return max(zero(), x); });
    case Activation::ReluSquared:
      return gate_with(gate, up, n, y, [](F x) {
        F positive = max(zero(), x);
        return positive * positive;
      });
    case Activation::Sigmoid:
      return gate_with(gate, up, n, y, [](F x) { return sigmoid(x); });
  }
}

COWMLX_KERNEL void gelu_gradient(const float* x, const float* by, int n, float* y) {
  gate_with(x, by, n, y, [](F v) { return gelu_slope(v); });
}

COWMLX_INLINE float highest_of(const float* x, int n) {
  F largest = set(x[0]);
  int i = 0;
  for (; i + LANES <= n; i += LANES) largest = max(largest, load(x + i));
  float found = highest(largest);
  for (; i < n; i++) found = x[i] > found ? x[i] : found;
  return found;
}

COWMLX_KERNEL void softmax(const float* x, int n, float* y) {
  if (n < 1) return;
  F largest = set(highest_of(x, n));
  float total = sum_of(n, [=](int i, int lanes, F so_far) {
    F power = only(exp(get(x + i, lanes) - largest), lanes);
    put(y + i, power, lanes);
    return so_far + power;
  });
  F factor = set(1.0f / total);
  each_vector(n, [=](int i, int lanes) { put(y + i, get(y + i, lanes) * factor, lanes); });
}

COWMLX_KERNEL void rotate(float* head, const float* cosines, const float* sines, int dims,
                          bool traditional) {
  int half = dims / 2;
  if (traditional) {
    for (int i = 0; i < half; i++) {
      float a = head[2 * i], b = head[2 * i + 1];
      head[2 * i] = a * cosines[i] - b * sines[i];
      head[2 * i + 1] = a * sines[i] + b * cosines[i];
    }
    return;
  }
  each_vector(half, [=](int i, int lanes) {
    F a = get(head + i, lanes), b = get(head + half + i, lanes);
    F c = get(cosines + i, lanes), s = get(sines + i, lanes);
    put(head + i, a * c - b * s, lanes);
    put(head + half + i, a * s + b * c, lanes);
  });
}

COWMLX_KERNEL void store_numbers(const float* from, int n, void* to, Scalar type) {
  if (type == Scalar::Float32) {
    memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  uint16_t* halves = static_cast<uint16_t*>(to);
  if (type == Scalar::Float16)
    each_vector(n,
                [=](int i, int lanes) { store_float16(halves + i, get(from + i, lanes), lanes); });
  else
    each_vector(n,
                [=](int i, int lanes) { store_bfloat16(halves + i, get(from + i, lanes), lanes); });
}

COWMLX_KERNEL void load_numbers(const void* from, Scalar type, int n, float* to) {
  if (type == Scalar::Float32) {
    memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  const uint16_t* halves = static_cast<const uint16_t*>(from);
  if (type == Scalar::Float16)
    each_vector(n, [=](int i, int lanes) { put(to + i, load_float16(halves + i, lanes), lanes); });
  else
    each_vector(n, [=](int i, int lanes) { put(to + i, load_bfloat16(halves + i, lanes), lanes); });
}

/* One group of numbers: a word's numbers lie lowest first. */
COWMLX_INLINE void quantize_affine(const float* x, int n, int bits, uint8_t* to, float* scale_out,
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

COWMLX_KERNEL void quantize_numbers(const float* from, int n, int bits, int group, void* words,
                                    void* scales, void* biases, Scalar type) {
  uint8_t* to = static_cast<uint8_t*>(words);
  for (int at = 0, start = 0; start < n; at++, start += group) {
    const float* numbers = from + start;
    float rounded[LARGEST_GROUP];
    uint16_t halves[LARGEST_GROUP];
    if (type != Scalar::Float32) {
      store_numbers(numbers, group, halves, type);
      load_numbers(halves, type, group, rounded);
      numbers = rounded;
    }
    float scale, bias;
    quantize_affine(numbers, group, bits, to + start * bits / 8, &scale, &bias);
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

/* Each operation is rounded by itself, in the order in which mlx does them. */
COWMLX_KERNEL void adam(const AdamStep& step, const float* gradient, const AdamState& from,
                        const AdamResult& to, int n) {
  const F beta1 = set(step.beta1), rest1 = set(step.rest1);
  const F beta2 = set(step.beta2), rest2 = set(step.rest2);
  const F rate = set(step.rate), root = set(step.root), eps = set(step.eps), keep = set(step.keep);
  each_vector(n, [&](int i, int lanes) {
    const F g = get(gradient + i, lanes);
    const F m = beta1 * get(from.first + i, lanes) + rest1 * g;
    const F v = beta2 * get(from.second + i, lanes) + rest2 * (g * g);
    put(to.first + i, m, lanes);
    put(to.second + i, v, lanes);
    const F old = get(from.parameter + i, lanes) * keep;
    put(to.parameter + i, old - rate * m / (sqrt(v) * root + eps), lanes);
  });
}

}  // namespace cowmlx::ISA
