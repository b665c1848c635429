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

/* Functions of a number, step by step, for loops that compilers turn into vectors. First mlx's exp,
 * sigmoid, erf, sin and cos: the same bits. */
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

/* ---- functions that mlx computes by libm: polynomials of Cephes (Moshier), other bits ---- */

constexpr float INFINITE = std::numeric_limits<float>::infinity();
constexpr float NOT_A_NUMBER = std::numeric_limits<float>::quiet_NaN();

/* Range reduction (Cody and Waite): x = whole * ln 2 + part; rest = exp(part) - 1 - part. x is in
 * -104 to 89. */
struct Powers {
  float whole, part, rest;

  explicit Powers(float x) {
    whole = std::floor(std::fma(x, 1.44269504088896341F, 0.5F));
    part = std::fma(whole, -0.693359375F, x);
    part = std::fma(whole, 2.12194440e-4F, part);
    float y = 1.9875691500e-4F;
    y = std::fma(y, part, 1.3981999507e-3F);
    y = std::fma(y, part, 8.3334519073e-3F);
    y = std::fma(y, part, 4.1665795894e-2F);
    y = std::fma(y, part, 1.6666665459e-1F);
    y = std::fma(y, part, 5.0000001201e-1F);
    rest = y * part * part;
  }
};

/* 2 to the power of a whole number in -126 to 127. */
inline float two_to(float whole) {
  return std::bit_cast<float>((static_cast<int32_t>(whole) + 127) << 23);
}

/* exp(x) for x in -87 to 88. */
inline float exact_exp(float x) {
  const Powers powers(x);
  return (1.0F + (powers.part + powers.rest)) * two_to(powers.whole);
}

inline float log(float in) {
  const bool is_small = in < std::numeric_limits<float>::min();
  const float scaled = is_small ? in * 8388608.0F : in;
  const auto bits = std::bit_cast<uint32_t>(scaled);
  /* The number between sqrt(1/2) and sqrt(2), and the power of 2. */
  const int32_t above = static_cast<int32_t>(bits - 0x3f3504f3U) >> 23;
  const float x = std::bit_cast<float>(bits - (static_cast<uint32_t>(above) << 23)) - 1.0F;
  const float power = static_cast<float>(above) - (is_small ? 23.0F : 0.0F);
  const float z = x * x;
  float y = 7.0376836292e-2F;
  y = std::fma(y, x, -1.1514610310e-1F);
  y = std::fma(y, x, 1.1676998740e-1F);
  y = std::fma(y, x, -1.2420140846e-1F);
  y = std::fma(y, x, 1.4249322787e-1F);
  y = std::fma(y, x, -1.6668057665e-1F);
  y = std::fma(y, x, 2.0000714765e-1F);
  y = std::fma(y, x, -2.4999993993e-1F);
  y = std::fma(y, x, 3.3333331174e-1F);
  y = y * x * z;
  y = std::fma(power, -2.12194440e-4F, y);
  y = std::fma(z, -0.5F, y);
  y = std::fma(power, 0.693359375F, x + y);
  y = in == INFINITE ? in : y;
  y = in == 0.0F ? -INFINITE : y;
  return in >= 0.0F ? y : NOT_A_NUMBER;
}

inline float log1p(float x) {
  const float u = 1.0F + x;
  const float lost = x > 1.0F ? 1.0F - (u - x) : x - (u - 1.0F); /* rounding error of the sum */
  const float y = log(u) + lost / u;
  const float ends = u == 0.0F || u == INFINITE ? log(u) : y;
  return std::fabs(x) < 1e-7F ? x : ends; /* keeps the sign of 0 */
}

struct Expm1 {
  float operator()(float in) const {
    const float above = in > -18.0F ? in : -18.0F;
    const Powers powers(above < 89.0F ? above : 89.0F);
    const float half = two_to(powers.whole - 1.0F); /* 2 to the power of 128 is not finite */
    const float small = powers.part + powers.rest;
    float y = std::fma(small, half, half - 0.5F) * 2.0F;
    y = powers.whole == 0.0F ? small : y;
    y = std::fabs(in) < 1e-7F ? in : y;
    y = in > 88.8F ? INFINITE : y;
    return in != in ? in : y;
  }
};

struct Log {
  float operator()(float x) const { return log(x); }
};

struct Log1p {
  float operator()(float x) const { return log1p(x); }
};

struct Tanh {
  float operator()(float in) const {
    const float x = std::fabs(in), most = x < 10.0F ? x : 10.0F;
    const float large = 1.0F - 2.0F / (exact_exp(2.0F * most) + 1.0F);
    const float z = x * x;
    float y = -5.70498872745e-3F;
    y = std::fma(y, z, 2.06390887954e-2F);
    y = std::fma(y, z, -5.37397155531e-2F);
    y = std::fma(y, z, 1.33314422036e-1F);
    y = std::fma(y, z, -3.33332819422e-1F);
    y = std::fma(y * z, x, x);
    y = std::copysign(x < 0.625F ? y : large, in);
    return in != in ? in : y;
  }
};

struct Cosh {
  float operator()(float in) const {
    const float x = std::fabs(in), e = exact_exp(0.5F * (x < 90.0F ? x : 90.0F));
    const float y = std::fma(0.5F * e, e, 0.5F / (e * e));
    const float found = x > 89.5F ? INFINITE : y;
    return in != in ? in : found;
  }
};

struct Sinh {
  float operator()(float in) const {
    const float x = std::fabs(in), e = exact_exp(0.5F * (x < 90.0F ? x : 90.0F));
    const float large = std::fma(0.5F * e, e, -0.5F / (e * e));
    const float z = x * x;
    float y = 2.03721912945e-4F;
    y = std::fma(y, z, 8.33028376239e-3F);
    y = std::fma(y, z, 1.66667160211e-1F);
    y = std::fma(y * z, x, x);
    y = x < 1.0F ? y : large;
    y = std::copysign(x > 89.5F ? INFINITE : y, in);
    return in != in ? in : y;
  }
};

/* Compilers turn a choice between two numbers into vectors, but not a bool that becomes one. */
template <class Comparison>
struct Compared {
  float operator()(float a, float b) const { return Comparison{}(a, b) ? 1.0F : 0.0F; }
};

struct LogAddExp {
  float operator()(float a, float b) const {
    const float least = a < b ? a : b, most = a < b ? b : a;
    const float distance = least - most;
    const float root = exact_exp(0.5F * (distance > -174.0F ? distance : -174.0F));
    const float y = most + log1p(root * root); /* which may be subnormal, or 0 */
    const float found = most == INFINITE || least == -INFINITE ? most : y;
    return a != a || b != b ? NOT_A_NUMBER : found;
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
    COWMLX_PLAIN_BINARY(COWMLX_CASE)
#undef COWMLX_CASE
#define COWMLX_CASE(NAME) \
  case Code::NAME:        \
    return each(a, b, n, y, vectors::Compared<mx::detail::NAME>{});
    COWMLX_COMPARED(COWMLX_CASE)
#undef COWMLX_CASE
#define COWMLX_CASE(NAME) \
  case Code::NAME:        \
    return each(a, n, y, mx::detail::NAME{});
    COWMLX_PLAIN(COWMLX_CASE)
#undef COWMLX_CASE
#define COWMLX_CASE(NAME) \
  case Code::NAME:        \
    return each(a, n, y, vectors::NAME{});
    COWMLX_VECTORS(COWMLX_CASE)
    COWMLX_CLOSE(COWMLX_CASE)
#undef COWMLX_CASE
    case Code::LogAddExp:
      return each(a, b, n, y, vectors::LogAddExp{});
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

#ifdef __clang__
#define COWMLX_AVX512 "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"
#else
#define COWMLX_AVX512 "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512"
#endif

/* Likewise for AVX-512: the same bits. */
[[gnu::target(COWMLX_AVX512), gnu::flatten]] void compute_with_avx512(Code code, const float* a,
                                                                      const float* b, int n,
                                                                      float* y) {
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
  const std::string_view name = table().name;
  if (name.starts_with("avx512")) return compute_with_avx512;
  if (name != "portable") return compute_with_avx2;
#endif
  return compute_plainly;
}

}  // namespace cowmlx
