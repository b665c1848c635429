#include "functions.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>

#include "mlx/backend/cpu/binary_ops.h"
#include "mlx/backend/cpu/unary_ops.h"
#include "table.h"

namespace cowmlx {
namespace {

#define COWMLX_TEXT(NAME) #NAME,
constexpr std::string_view NAMES[] = {COWMLX_BINARY(COWMLX_TEXT) COWMLX_COMPARED(COWMLX_TEXT)
                                          COWMLX_UNARY(COWMLX_TEXT)};
#undef COWMLX_TEXT

/* mlx's exp, sigmoid, erf, sin and cos of a number, step by step, for loops that compilers turn
 * into vectors: the same bits. */
namespace vectors {

inline float exp(float in) {
  const float x = in * 1.442695F;
  const float low = std::floor(x);
  const float whole = x - low >= 0.5F ? low + 1.0F : low; /* mlx adds 0.5 as a double */
  const float part = x - whole;
  float y = 1.535336188319500e-4F;
  y = std::fma(y, part, 1.339887440266574e-3F);
  y = std::fma(y, part, 9.618437357674640e-3F);
  y = std::fma(y, part, 5.550332471162809e-2F);
  y = std::fma(y, part, 2.402264791363012e-1F);
  y = std::fma(y, part, 6.931472028550421e-1F);
  y = std::fma(y, part, 1.0F);
  const float above = whole > -127.0F ? whole : -127.0F;
  const float power = above < 127.0F ? above : 127.0F;
  y = std::bit_cast<float>((static_cast<int32_t>(power) + 127) << 23) * y;
  y = in > 88.0F ? std::numeric_limits<float>::infinity() : y;
  y = in < -88.0F ? 0.0F : y;
  return in != in ? in : y;
}

struct Exp {
  float operator()(float x) const { return exp(x); }
};

struct Sigmoid {
  float operator()(float x) const {
    const float y = 1.0F / (1.0F + exp(std::fabs(x)));
    return x < 0.0F ? y : 1.0F - y;
  }
};

struct Erf {
  float operator()(float x) const {
    const float t = 1.0F / std::fma(0.3275911F, std::fabs(x), 1.0F);
    float r = std::fma(1.061405429F, t, -1.453152027F);
    r = std::fma(r, t, 1.421413741F);
    r = std::fma(r, t, -0.284496736F);
    r = std::fma(r, t, 0.254829592F);
    const float e = -exp(-x * x);
    const float result = std::fma(e * t, r, 1.0F);
    return x > 0.0F ? result : -result;
  }
};

/* The sine or cosine of numbers up to LARGEST; mlx asks libm for larger ones. */
template <bool SINE>
struct Wave {
  static constexpr float LARGEST = 8388608.0F;

  float operator()(float in) const {
    float x = std::fabs(in);
    const float turns = x * 1.27323954473516F;
    const int32_t whole = static_cast<int32_t>(turns < 2 * LARGEST ? turns : 0.0F);
    const int32_t even = (whole + 1) & ~1;
    const auto y = static_cast<float>(even);
    x = std::fma(y, -0.78515625F, x);
    x = std::fma(y, -2.4187564849853515625e-4F, x);
    x = std::fma(y, -3.77489497744594108e-8F, x);
    const float z = x * x;
    float one = std::fma(z, 2.443315711809948e-5F, -1.388731625493765e-3F);
    float two = std::fma(z, -1.9515295891e-4F, 8.3321608736e-3F);
    one = std::fma(one, z, 4.166664568298827e-2F) * z * z;
    two = std::fma(x, std::fma(two, z, -1.6666654611e-1F) * z, x);
    one = std::fma(z, -0.5F, one) + 1.0F;
    const bool is_turned = (even & 2) != 0;
    const float found = is_turned == SINE ? one : two;
    if (!SINE) return ((even - 2) & 4) == 0 ? -found : found;
    const float positive = (even & 4) != 0 ? -found : found; /* of the number without its sign */
    return in < 0 ? -positive : positive;
  }
};

}  // namespace vectors

template <class Function>
[[gnu::always_inline]] inline void each(const float* a, int n, float* y, Function function) {
  for (int i = 0; i < n; i++) y[i] = function(a[i]);
}

/* With `exact`, which is slower, where some of the numbers are large. */
template <bool SINE, class Exact>
[[gnu::always_inline]] inline void waves(const float* a, int n, float* y, Exact exact) {
  bool has_large = false;
  for (int i = 0; i < n; i++) has_large |= std::fabs(a[i]) > vectors::Wave<SINE>::LARGEST;
  if (has_large)
    each(a, n, y, exact);
  else
    each(a, n, y, vectors::Wave<SINE>{});
}

template <class Function>
[[gnu::always_inline]] inline void each(const float* a, const float* b, int n, float* y,
                                        Function function) {
  for (int i = 0; i < n; i++) y[i] = function(a[i], b[i]);
}

[[gnu::always_inline]] inline void compute_any(Code code, const float* a, const float* b, int n,
                                               float* y) {
  switch (code) {
#define COWMLX_CASE(NAME) \
  case Code::NAME:        \
    return each(a, b, n, y, mx::detail::NAME{});
    COWMLX_BINARY(COWMLX_CASE)
    COWMLX_COMPARED(COWMLX_CASE)
#undef COWMLX_CASE
#define COWMLX_CASE(NAME) \
  case Code::NAME:        \
    return each(a, n, y, mx::detail::NAME{});
    COWMLX_PLAIN(COWMLX_CASE)
    COWMLX_CURVED(COWMLX_CASE)
#undef COWMLX_CASE
#define COWMLX_CASE(NAME) \
  case Code::NAME:        \
    return each(a, n, y, vectors::NAME{});
    COWMLX_VECTORS(COWMLX_CASE)
#undef COWMLX_CASE
    case Code::Sin:
      return waves<true>(a, n, y, mx::detail::Sin{});
    case Code::Cos:
      return waves<false>(a, n, y, mx::detail::Cos{});
  }
}

[[gnu::flatten]] void compute_plainly(Code code, const float* a, const float* b, int n, float* y) {
  compute_any(code, a, b, n, y);
}

#ifdef __x86_64__
/* The same, compiled for AVX2 and FMA, which the rest of this file must do without. */
[[gnu::target("avx2,fma"), gnu::flatten]] void compute_with_avx2(Code code, const float* a,
                                                                 const float* b, int n, float* y) {
  compute_any(code, a, b, n, y);
}
#endif

}  // namespace

std::optional<Code> code_of(const mx::Primitive& primitive) {
  const auto found = std::find(std::begin(NAMES), std::end(NAMES), primitive.name());
  if (found == std::end(NAMES)) return std::nullopt;
  return static_cast<Code>(found - std::begin(NAMES));
}

Functions functions() {
#ifdef __x86_64__
  if (std::string_view(table().name) != "portable") return compute_with_avx2;
#endif
  return compute_plainly;
}

}  // namespace cowmlx
