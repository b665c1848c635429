// The 16 lanes of one instruction set against what a loop over plain numbers gives. SET is its
// header; says what differs and returns 1, or says nothing.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define ISA checked
#include SET
#include "families/vectors.h"

namespace {

using namespace cowmlx::ISA;
namespace lanes = cowmlx::ISA;

constexpr int COUNT = 16;
int failures = 0;

void expect(bool holds, const char* what, double at = 0) {
  if (holds) return;
  failures++;
  if (failures < 20) fprintf(stderr, "%s at %a\n", what, at);
}

uint32_t state = 1;
uint32_t random_word() { return state = state * 1664525 + 1013904223; }
float random_number() { return static_cast<float>(static_cast<int32_t>(random_word())) * 0x1p-28f; }

struct Numbers {
  float v[COUNT];

  Numbers() {
    for (float& x : v) x = random_number();
  }
  explicit Numbers(F a) { store(v, a); }
  operator F() const { return load(v); }
};

bool is_nan_bfloat16(uint16_t b) { return (b & 0x7fff) > 0x7f80; }
bool is_nan_float16(uint16_t b) { return (b & 0x7fff) > 0x7c00; }

// Bit patterns over the whole range of float32, a step apart.
template <class Body>
void over_floats(uint64_t step, Body body) {
  for (uint64_t from = 0; from < (uint64_t{1} << 32); from += COUNT * step) {
    float x[COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = float_of(static_cast<uint32_t>(from + i * step));
    body(x);
  }
}

void exponential() {
  over_floats(STEP, [](const float* x) {
    const Numbers found(lanes::exp(load(x)));
    for (int i = 0; i < COUNT; i++) {
      const float got = found.v[i];
      const double wanted = std::exp(static_cast<double>(x[i]));
      const float rounded = static_cast<float>(wanted);
      if (x[i] != x[i])
        expect(got != got, "exp loses a NaN", x[i]);
      else if (std::isinf(rounded))
        expect(got == rounded, "exp is not infinite", x[i]);
      else  // two units in the last place
        expect(std::fabs(got - wanted) <= 2 * std::fmax(wanted * 0x1p-23, 0x1p-149), "exp", x[i]);
    }
  });
}

void halves() {
  for (uint32_t from = 0; from < 65536; from += COUNT) {
    uint16_t bits[COUNT], back[COUNT];
    for (int i = 0; i < COUNT; i++) bits[i] = static_cast<uint16_t>(from + i);
    const Numbers wide(load_float16(bits)), brain(load_bfloat16(bits));
    store_float16(back, load_float16(bits));
    for (int i = 0; i < COUNT; i++) {
      const bool nan = is_nan_float16(bits[i]);
      expect(nan ? is_nan_float16(back[i]) : back[i] == bits[i], "float16 and back", bits[i]);
      const float one = from_float16(bits[i]);
      expect(nan ? one != one && wide.v[i] != wide.v[i] : one == wide.v[i], "float16", bits[i]);
    }
    store_bfloat16(back, load_bfloat16(bits));
    for (int i = 0; i < COUNT; i++) {
      const bool nan = is_nan_bfloat16(bits[i]);
      expect(nan ? is_nan_bfloat16(back[i]) : back[i] == bits[i], "bfloat16 and back", bits[i]);
      expect(nan || from_bfloat16(bits[i]) == brain.v[i], "bfloat16", bits[i]);
    }
  }
}

// The nearest float16, found by its neighbours' distances; ties go to the even one.
uint16_t nearest_float16(float x) {
  const uint16_t sign = x < 0 || (x == 0 && std::signbit(x)) ? 0x8000 : 0;
  const double size = std::fabs(static_cast<double>(x));
  if (size >= 65520) return sign | 0x7c00;
  int exponent = size > 0 ? std::ilogb(size) : -14;
  if (exponent < -14) exponent = -14;
  const double unit = std::ldexp(1.0, exponent - 10);
  const double units = std::nearbyint(size / unit);
  return sign | static_cast<uint16_t>(units + (exponent + 14) * 1024.0);
}

void rounding() {
  over_floats(STEP, [](const float* x) {
    uint16_t half[COUNT], brain[COUNT];
    store_float16(half, load(x));
    store_bfloat16(brain, load(x));
    for (int i = 0; i < COUNT; i++) {
      if (x[i] != x[i]) {
        expect(is_nan_float16(half[i]) && is_nan_float16(to_float16(x[i])), "a NaN in float16");
        expect(is_nan_bfloat16(brain[i]) && is_nan_bfloat16(to_bfloat16(x[i])), "in bfloat16");
        continue;
      }
      const uint16_t wanted = nearest_float16(x[i]);
      expect(half[i] == wanted && to_float16(x[i]) == wanted, "to float16", x[i]);
      const float got = from_bfloat16(brain[i]);
      expect(brain[i] == to_bfloat16(x[i]), "to bfloat16, one or 16", x[i]);
      const float up = from_bfloat16(static_cast<uint16_t>(brain[i] + 1));
      const float down = from_bfloat16(static_cast<uint16_t>(brain[i] - 1));
      const double far = std::fabs(static_cast<double>(got) - x[i]);
      if (std::isfinite(up) && std::isfinite(got) && (brain[i] & 0x7fff) != 0)
        expect(far <= std::fabs(static_cast<double>(up) - x[i]) &&
                   far <= std::fabs(static_cast<double>(down) - x[i]),
               "to bfloat16", x[i]);
    }
  });
}

void arithmetic() {
  for (int round = 0; round < 200; round++) {
    const Numbers a, b, c, x, y;
    const Numbers added(F(a) + F(b)), taken(F(a) - F(b)), times(F(a) * F(b)), over(F(a) / F(b));
    const Numbers most(max(a, b)), least(min(a, b)), fused(fma(a, b, c)), less(fnma(a, b, c));
    const Numbers size(lanes::abs(F(a))), root(lanes::sqrt(lanes::abs(F(a))));
    const Numbers chosen(select_less(a, b, x, y));
    double total = 0;
    float top = a.v[0];
    for (int i = 0; i < COUNT; i++) {
      const float p = a.v[i], q = b.v[i];
      expect(added.v[i] == p + q && taken.v[i] == p - q, "add and subtract", p);
      expect(times.v[i] == p * q && over.v[i] == p / q, "multiply and divide", p);
      expect(most.v[i] == std::fmax(p, q) && least.v[i] == std::fmin(p, q), "max and min", p);
      const double product = static_cast<double>(p) * q, near = 0x1p-22 * std::fabs(product);
      expect(std::fabs(fused.v[i] - (product + c.v[i])) <= near + 1e-6, "fma", p);
      expect(std::fabs(less.v[i] - (c.v[i] - product)) <= near + 1e-6, "fnma", p);
      expect(size.v[i] == std::fabs(p) && root.v[i] == std::sqrt(std::fabs(p)), "root", p);
      expect(chosen.v[i] == (p < q ? x.v[i] : y.v[i]), "select_less", p);
      total += p;
      top = std::fmax(top, p);
    }
    expect(std::fabs(sum(a) - total) < 1e-4 && highest(a) == top, "sum and highest", total);
  }
}

void parts() {
  for (int n = 0; n <= COUNT; n++) {
    float from[COUNT], to[COUNT + 1];
    uint16_t half[COUNT], to_half[COUNT + 1];
    for (int i = 0; i < COUNT; i++) from[i] = static_cast<float>(i + 1);
    store_float16(half, load(from));
    // Beyond n nothing may be touched: the sanitizer watches these copies' ends.
    auto* few = static_cast<float*>(malloc(n > 0 ? n * sizeof(float) : 1));
    memcpy(few, from, n * sizeof *few);
    const Numbers loaded(load(few, n));
    for (int i = 0; i < COUNT; i++) expect(loaded.v[i] == (i < n ? from[i] : 0), "load", n);
    free(few);
    for (float& x : to) x = -1;
    store(to, load(from), n);
    for (int i = 0; i <= COUNT; i++) expect(to[i] == (i < n ? from[i] : -1), "store", n);
    for (uint16_t& x : to_half) x = 7;
    store_float16(to_half, load_float16(half, n), n);
    for (int i = 0; i <= COUNT; i++) expect(to_half[i] == (i < n ? half[i] : 7), "float16", n);
    store_bfloat16(half, load(from));
    const Numbers ordered(in_order(load_bfloat16_apart(half)));
    for (int i = 0; i < COUNT; i++) expect(ordered.v[i] == from[i], "bfloat16 in order", n);
    for (uint16_t& x : to_half) x = 7;
    store_bfloat16(to_half, load_bfloat16(half, n), n);
    for (int i = 0; i <= COUNT; i++) expect(to_half[i] == (i < n ? half[i] : 7), "bfloat16", n);
  }
}

struct Bytes {
  uint8_t v[64];

  explicit Bytes(int most) {
    for (uint8_t& x : v) x = static_cast<uint8_t>((random_word() >> 16) % (most + 1));
  }
  explicit Bytes(I a) { store_words(v, a); }
  operator I() const { return load_words(v); }
  uint32_t word(int i) const {
    uint32_t w;
    memcpy(&w, v + 4 * i, 4);
    return w;
  }
};

void words() {
  uint8_t bytes[16];
  float entries[COUNT];
  for (int i = 0; i < COUNT; i++) {
    bytes[i] = static_cast<uint8_t>(17 * i + 3);
    entries[i] = 1.5f * static_cast<float>(i) - 7;
  }
  for (int round = 0; round < 500; round++) {
    Bytes a(255), b(255), nibbles(15);
    if (round == 0) memset(a.v, 255, 64), memset(b.v, 128, 64);
    if (round == 1) memset(a.v, 255, 64), memset(b.v, 127, 64);
    Bytes small(a);
    for (uint8_t& x : small.v) x &= 127;
    Bytes above(b);  // -128
    for (uint8_t& x : above.v) x += x == 128;
    const Bytes both(I(a) & I(b)), any(I(a) | I(b)), other(I(a) ^ I(b)), added(I(a) + I(b));
    const Bytes right(shift_right<5>(a)), same(shift_right<0>(a)), left(shift_left<9>(a));
    const Bytes signed_right(shift_right_signed<28>(a));
    const Bytes dots(dot4(a, small, b)), wide(dot4_wide(b, a, above)), all(broadcast(a.v + 8));
    const Bytes looked(lookup_bytes(set_table(bytes), nibbles)), widened(load_bytes(a.v));
    const Bytes halved(load_nibbles(a.v));
    const Numbers found(lookup(load(entries), a)), converted(convert(a));
    uint8_t lowest[16];
    store_bytes(lowest, a);
    for (int i = 0; i < COUNT; i++) {
      const uint32_t p = a.word(i), q = b.word(i);
      expect(both.word(i) == (p & q) && any.word(i) == (p | q), "and, or", p);
      expect(other.word(i) == (p ^ q) && added.word(i) == p + q, "xor, add", p);
      expect(right.word(i) == p >> 5 && left.word(i) == p << 9 && same.word(i) == p, "shift", p);
      expect(signed_right.word(i) == (p >> 28 ^ 8) - 8, "shift_right_signed", p);
      uint32_t dot = p, dot_wide = q;
      for (int j = 4 * i; j < 4 * i + 4; j++) {
        dot += static_cast<uint32_t>(small.v[j] * static_cast<int8_t>(b.v[j]));
        const int less = a.v[j] - static_cast<int>(WIDE_MIDDLE);
        dot_wide += static_cast<uint32_t>(less * static_cast<int8_t>(above.v[j]));
        expect(looked.v[j] == bytes[nibbles.v[j]], "lookup_bytes", j);
      }
      expect(dots.word(i) == dot, "dot4", i);
      expect(wide.word(i) == dot_wide, "dot4_wide", i);
      expect(all.word(i) == a.word(2), "broadcast", i);
      expect(widened.word(i) == a.v[i] && lowest[i] == (p & 255), "load and store bytes", i);
      expect(halved.word(i) == (a.v[i / 2] >> i % 2 * 4 & 15u), "load_nibbles", i);
      expect(found.v[i] == entries[p & 15], "lookup", i);
      expect(converted.v[i] == static_cast<float>(static_cast<int32_t>(p)), "convert", p);
    }
    const Numbers x;
    const Bytes rounded(lanes::round(F(x) * set(1000)));
    for (int i = 0; i < COUNT; i++)
      expect(rounded.word(i) ==
                 static_cast<uint32_t>(static_cast<int32_t>(std::nearbyint(x.v[i] * 1000))),
             "round", x.v[i]);
  }
}

// Steps of four products with bytes up to `most`, at both ends of the range and between.
void few_products(int steps, int most) {
  for (int round = 0; round < 100; round++) {
    I sums = zero_words();
    int wanted[COUNT] = {};
    for (int step = 0; step < steps; step++) {
      Bytes a(most), b(255);
      for (uint8_t& x : b.v) x += x == 128;
      if (round < 2) memset(a.v, most, 64), memset(b.v, round == 0 ? 127 : -127, 64);
      sums = dot4_few(sums, a, b);
      for (int j = 0; j < 64; j++) wanted[j / 4] += a.v[j] * static_cast<int8_t>(b.v[j]);
    }
    const Bytes whole(few(sums));
    for (int i = 0; i < COUNT; i++)
      expect(whole.word(i) == static_cast<uint32_t>(wanted[i]), "dot4_few", i);
  }
}

void bytes_of_formats() {
  for (int b = 0; b < 256; b++) {
    const int exponent = (b >> 3) & 15, fraction = b & 7;
    const double size =
        exponent > 0 ? std::ldexp(8.0 + fraction, exponent - 10) : std::ldexp(1.0 * fraction, -9);
    const float e4m3 = from_e4m3(static_cast<uint8_t>(b));
    expect((b & 127) == 127 ? e4m3 != e4m3 : e4m3 == (b & 128 ? -size : size), "e4m3", b);
    const float e8m0 = from_e8m0(static_cast<uint8_t>(b));
    expect(b == 255 ? e8m0 != e8m0 : e8m0 == std::ldexp(1.0, b - 127), "e8m0", b);
  }
}

}  // namespace

int main() {
  exponential();
  halves();
  rounding();
  arithmetic();
  parts();
  words();
  few_products(8, 16);
  few_products(4, 32);
  bytes_of_formats();
  return failures > 0;
}
