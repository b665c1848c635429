/* Numbers out of quantized words, and the scales beside them, for 16 rows at a time. */
#pragma once

#include "../matrix.h"

#define COWMLX_MEMBER inline __attribute__((always_inline))

namespace cowmlx::ISA {

template <int N>
struct Constant {
  static constexpr int value = N;
};

/* body(Constant<0>) … body(Constant<COUNT - 1>), so that shifts are known to the compiler. */
template <int COUNT, int I = 0, class F>
COWMLX_INLINE void unrolled(F&& body) {
  if constexpr (I < COUNT) {
    body(Constant<I>{});
    unrolled<COUNT, I + 1>(body);
  }
}

/* mlx's packing: a row's numbers are a stream of bits, lowest first. A step is as many words as
 * hold whole numbers: one word for 2, 4 and 8 bits, 3, 5 or 6 words with 32 numbers for the others.
 */
template <int BITS>
struct Packing {
  static constexpr bool EVEN = 32 % BITS == 0;
  static constexpr int WORDS = EVEN ? 1 : BITS;
  static constexpr int NUMBERS = EVEN ? 32 / BITS : 32;

  /* Number J of a step, as integers. */
  template <int J>
  static COWMLX_MEMBER I number(const I* words) {
    constexpr int WORD = J * BITS / 32, SHIFT = J * BITS % 32;
    constexpr uint32_t MASK = (1u << BITS) - 1;
    I bits = shift_right<SHIFT>(words[WORD]);
    if constexpr (SHIFT + BITS > 32) bits = bits | shift_left<32 - SHIFT>(words[WORD + 1]);
    if constexpr (SHIFT + BITS == 32) return bits;
    return bits & set_word(MASK);
  }
};

/* What a format's quantized integers stand for, in float32, before the scale. BIASED formats have a
 * bias for each group, which counts from integer MIDDLE on: integers of both signs add up to less,
 * and what the bias takes off again is less. value() returns the number times 1 / UNIT, so the
 * scale is multiplied by UNIT. */
template <int BITS>
struct AffineCode : Packing<BITS> {
  static constexpr bool BIASED = true, HAS_NAN = false;
  static constexpr int MIDDLE = 1 << (BITS - 1);
  static constexpr bool ABOVE = NUMBERS_BY_SHIFTS && Packing<BITS>::EVEN;
  static constexpr float UNIT = ABOVE ? 1.0f / (1u << (32 - BITS)) : 1;

  template <int J>
  static COWMLX_MEMBER F value(const I* words, F table) {
    if constexpr (ABOVE)
      return less_middle<J>(words[0] ^ set_word(MIDDLE * (0xffffffff / ((1u << BITS) - 1))));
    else if constexpr (BITS == 4)
      return lookup(table, shift_right<4 * J>(words[0]));
    else /* the last bits of 2^23 + number */
      return as_floats(Packing<BITS>::template number<J>(words) | set_word(0x4b000000)) -
             set(0x1p23f + MIDDLE);
  }

  /* Number J less MIDDLE: with their first bits turned over, numbers have a sign. They stay in the
   * word's first bits: Zen 3 has two units for shifts, and four for masks. */
  template <int J>
  static COWMLX_MEMBER F less_middle(I turned) {
    constexpr int BEFORE = 32 - BITS * (J + 1);
    if constexpr (BEFORE > 0) turned = shift_left<BEFORE>(turned);
    return convert(turned & set_word(~0u << (32 - BITS)));
  }

  static COWMLX_MEMBER F table() {
    if constexpr (BITS != 4) return zero();
    static constexpr float NUMBERS[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    return load(NUMBERS);
  }
};

/* Twice the values of E2M1 (OCP microscaling formats), all of them integers. */
static constexpr int8_t TWICE_E2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr int E2M1_OFFSET = 12; /* makes them numbers without sign */

struct Float4Code : Packing<4> {
  static constexpr bool BIASED = false, HAS_INT8 = true, HAS_NAN = false;
  static constexpr float UNIT = 1;

  static COWMLX_MEMBER float scalar(uint32_t code) { return 0.5f * TWICE_E2M1[code]; }

  template <int J>
  static COWMLX_MEMBER F value(const I* words, F table) {
    return lookup(table, shift_right<4 * J>(words[0]));
  }

  static COWMLX_MEMBER F table() {
    float values[16];
    for (uint32_t i = 0; i < 16; i++) values[i] = scalar(i);
    return load(values);
  }
};

struct Float8Code : Packing<8> {
  static constexpr bool BIASED = false, HAS_INT8 = false, HAS_NAN = true;
  static constexpr float UNIT = 1;

  static COWMLX_MEMBER float scalar(uint32_t code) { return from_e4m3(static_cast<uint8_t>(code)); }

  /* Moved to float32's exponent by a multiplication, which makes subnormals right, too. NaNs become
   * 480: to test every number for them takes a fifth more time than nans(). */
  template <int J>
  static COWMLX_MEMBER F value(const I* words, F) {
    const I first = shift_left<24 - 8 * J>(words[0]);
    return as_floats(shift_right_signed<4>(first) & set_word(0x87f00000)) * set(0x1p120f);
  }

  /* The first bit of each byte says whether it is a NaN's; others are any. */
  static COWMLX_MEMBER I nans(const I* words) {
    return (words[0] & set_word(0x7f7f7f7f)) + set_word(0x01010101);
  }

  /* The scale of a group, or NaN if its nans() have one. */
  static COWMLX_MEMBER F spoiled(F scale, I nans) {
    const F infinite = convert(nans & set_word(0x80808080)) * set(0x1p127f); /* or 0 */
    return fma(infinite, zero(), scale);
  }

  static COWMLX_MEMBER F table() { return zero(); }
};

/* Decode a scale of one byte. */
COWMLX_INLINE float byte_scale(Format format, uint8_t byte) {
  switch (format) {
#define DECODE(NAME, MODE, BITS, GROUP, CODE, SCALE) \
  case Format::NAME:                                 \
    return from_##SCALE(byte);
    COWMLX_FLOAT_FORMATS(DECODE)
#undef DECODE
    default:
      return 0;
  }
}

/* 16 scales of one byte. */
COWMLX_INLINE F load_byte_scales(const uint8_t* bytes, Format format) {
  float scales[LANES];
  /* A loop for each format, which the compiler makes vectors of. */
  switch (format) {
#define DECODE(NAME, MODE, BITS, GROUP, CODE, SCALE)                                   \
  case Format::NAME:                                                                   \
    for (int lane = 0; lane < LANES; lane++) scales[lane] = from_##SCALE(bytes[lane]); \
    break;
    COWMLX_FLOAT_FORMATS(DECODE)
#undef DECODE
    default:
      return zero();
  }
  return load(scales);
}

/* 16 scales or biases of each of B blocks, `next` apart. */
template <int B>
COWMLX_INLINE void load_scales(const void* p, int64_t at, int64_t next, Format format, Scalar type,
                               F (&to)[B]) {
  const auto* halves = static_cast<const uint16_t*>(p) + at;
  if (type == Scalar::BFloat16) {
    for (int b = 0; b < B; b++) to[b] = load_bfloat16(halves + b * next);
  } else if (type == Scalar::Float16) {
    for (int b = 0; b < B; b++) to[b] = load_float16(halves + b * next);
  } else if (type == Scalar::Float32) {
    for (int b = 0; b < B; b++) to[b] = load(static_cast<const float*>(p) + at + b * next);
  } else {
    for (int b = 0; b < B; b++)
      to[b] = load_byte_scales(static_cast<const uint8_t*>(p) + at + b * next, format);
  }
}

}  // namespace cowmlx::ISA
