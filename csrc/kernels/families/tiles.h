/* Products in tiles of M rows of activations and B blocks of 16 rows of weights, kept in registers.
 *
 * Every number of the result is one chain of operations over the columns, the same in every tile,
 * so rows do not influence each other and a prompt gives what its tokens give one by one. */
#pragma once

#include "activations.h"

namespace cowmlx::ISA {

/* Rows of activations that stand beside each other in a tile of M. */
template <int M>
constexpr int WIDTH = M == 1 ? 1 : 4;

/* How far ahead a tile of M rows prefetches, in bytes of the weights of all blocks beside each
 * other. Several rows compute for longer, and no processor knows by itself what stands behind the
 * next page: 17 rows of float32 on an AMD EPYC (Zen 5) had 56 G/s without, 77 with 3 KB, 107 with
 * this. */
template <int M>
COWMLX_INLINE int64_t ahead() {
  return M == 1 ? one_row.ahead : 12 << 10;
}
constexpr int64_t GROUPS_AHEAD = 8; /* one row: of scales */

/* Where a tile writes: the first `rows` of its rows. */
struct Output {
  float* y; /* of its first row */
  int64_t stride;
  int rows;
  bool positive = false; /* numbers below 0 are written as 0 */
};

template <int M, int B>
COWMLX_INLINE void write(const Matrix& matrix, int block, const F (&total)[M][B],
                         const Output& out) {
  unrolled<B>([&](auto index) __attribute__((
                  always_inline)) { /* else sums leave registers */
                                    constexpr int BLOCK = decltype(index)::value;
                                    const int column = (block + BLOCK) * LANES;
                                    const int count =
                                        matrix.rows - column < LANES ? matrix.rows - column : LANES;
                                    const F bias = matrix.bias == nullptr
                                                       ? zero()
                                                       : load(matrix.bias + column, count);
                                    unrolled<M>([&](auto m) __attribute__((always_inline)) {
                                      constexpr int ROW = decltype(m)::value;
                                      if (ROW >= out.rows) return;
                                      F value = matrix.bias == nullptr ? total[ROW][BLOCK]
                                                                       : total[ROW][BLOCK] + bias;
                                      if (out.positive) value = max(zero(), value);
                                      float* place = out.y + ROW * out.stride + column;
                                      if (count == LANES)
                                        store(place, value);
                                      else
                                        store(place, value, count);
                                    });
  });
}

constexpr int64_t WORD = LANES * sizeof(uint32_t); /* bytes of a word of 16 rows */

/* Unit k (a number, or four bytes) of row m in a tile; `run` units on stand the next rows. */
template <int M, class T>
COWMLX_INLINE const T* at(const T* x, int64_t run, int64_t k, int m) {
  return x + (m / WIDTH<M>)*run + k * WIDTH<M> + m % WIDTH<M>;
}

/* Where a tile prefetches from B blocks of `size` bytes each: `behind` bytes behind its place in
 * each block, and near the end of its blocks in the next B blocks. */
template <int B>
struct Asking {
  int64_t size, behind;

  Asking(int64_t size, int64_t ahead) : size(size), behind(ahead / B) {}

  /* How many steps of `bytes` still prefetch from the same blocks. */
  int64_t own(int64_t bytes) const {
    return behind < size ? (size - behind + bytes - 1) / bytes : 0;
  }
  int64_t next() const { return behind + (B - 1) * size; }
  int64_t at(int64_t place) const { return place + behind < size ? behind : next(); }
};

/* Prefetch `behind` bytes behind a place in each of B blocks of `size` bytes, for a tile of M rows.
 */
template <int M, int B>
COWMLX_INLINE void ask_for(const void* place, int64_t behind, int64_t size) {
  enum { SECOND_LEVEL = 2, FIRST_LEVEL = 3 };
  const char* from = static_cast<const char*>(place) + behind;
  const bool second = M == 1 && one_row.second_level;
  for (int b = 0; b < B; b++) {
    if (second)
      __builtin_prefetch(from + b * size, 0, SECOND_LEVEL);
    else
      __builtin_prefetch(from + b * size, 0, FIRST_LEVEL);
  }
}

/* Call step(k, behind) for k from 0 to count - 1; a step reads `bytes` of each of B blocks. */
template <int M, int B, class Step>
COWMLX_INLINE void each_step(int64_t count, int64_t bytes, Step step) {
  const Asking<B> asking(count * bytes, ahead<M>());
  int64_t k = 0, behind = asking.behind;
  for (int64_t end = asking.own(bytes); k < count; end = count, behind = asking.next())
    for (; k < end; k++) step(k, behind);
}

/* Ask for scales, and biases if there are any, of a later group than g. */
template <int M, int B, bool BIASED>
COWMLX_INLINE void ask_for_scales(const Matrix& matrix, int block, int g, int groups) {
  const auto bytes = static_cast<int64_t>(LANES * size_of(matrix.scale_type));
  const Asking<B> asking(groups * bytes, GROUPS_AHEAD * B * bytes);
  const int64_t at = (int64_t{block} * groups + g) * bytes, behind = asking.at(g * bytes);
  ask_for<M, B>(static_cast<const char*>(matrix.scales) + at, behind, asking.size);
  if constexpr (BIASED)
    ask_for<M, B>(static_cast<const char*>(matrix.biases) + at, behind, asking.size);
}

/* The scales of group g, and the biases if there are any. */
template <int B, bool BIASED>
COWMLX_INLINE void load_group(const Matrix& matrix, int block, int g, int groups, F (&scale)[B],
                              F (&bias)[B]) {
  const int64_t next = int64_t{groups} * LANES, at = block * next + int64_t{g} * LANES;
  load_scales(matrix.scales, at, next, matrix.format, matrix.scale_type, scale);
  if constexpr (BIASED)
    load_scales(matrix.biases, at, next, matrix.format, matrix.scale_type, bias);
}

template <class T>
COWMLX_INLINE F dense_numbers(const T* p, Format format) {
  if constexpr (sizeof(T) == 4)
    return load(p);
  else
    return format == Format::BFloat16 ? load_bfloat16_apart(p) : load_float16(p);
}

template <class T, Format FORMAT, int M, int B>
static void dense_tile(const Matrix& matrix, const float* x, int64_t run, int block,
                       const Output& out) {
  const int columns = matrix.columns;
  const T* w = static_cast<const T*>(matrix.weight) + int64_t{block} * columns * LANES;
  const int64_t next = int64_t{columns} * LANES;
  F total[M][B];
  for (int m = 0; m < M; m++)
    for (int b = 0; b < B; b++) total[m][b] = zero();
  constexpr auto BYTES = static_cast<int64_t>(LANES * sizeof(T));
  each_step<M, B>(columns, BYTES, [&](int64_t k, int64_t behind) __attribute__((always_inline)) {
    F weight[B];
    for (int b = 0; b < B; b++) weight[b] = dense_numbers(w + b * next + k * LANES, FORMAT);
    ask_for<M, B>(w + k * LANES, behind, columns * BYTES);
    for (int m = 0; m < M; m++) {
      const F value = set(*at<M>(x, run, k, m));
      for (int b = 0; b < B; b++) total[m][b] = fma(weight[b], value, total[m][b]);
    }
  });
  if constexpr (FORMAT == Format::BFloat16)
    for (int m = 0; m < M; m++)
      for (int b = 0; b < B; b++) total[m][b] = in_order(total[m][b]);
  write(matrix, block, total, out);
}

/* Quantized weights and exact activations. */
template <class Code, int M, int B>
static void exact_tile(const Matrix& matrix, const float* x, int64_t run, const float* sums,
                       int block, const Output& out) {
  constexpr int WORDS = Code::WORDS, NUMBERS = Code::NUMBERS;
  const int group = matrix.group, groups = matrix.columns / group;
  const int64_t words = int64_t{matrix.columns} / NUMBERS * WORDS;
  const uint32_t* w = static_cast<const uint32_t*>(matrix.weight) + block * words * LANES;
  const F table = Code::table();
  F total[M][B];
  for (int m = 0; m < M; m++)
    for (int b = 0; b < B; b++) total[m][b] = zero();
  const Asking<B> asking(words * WORD, ahead<M>());
  int64_t k = 0;
  for (int g = 0; g < groups; g++) {
    F part[M][B];
    for (int m = 0; m < M; m++)
      for (int b = 0; b < B; b++) part[m][b] = zero();
    I nans[B];
    for (int b = 0; b < B; b++) nans[b] = zero_words();
    const int64_t behind = asking.at(k / NUMBERS * WORDS * WORD);
    for (const int64_t end = k + group; k < end; k += NUMBERS) {
      I word[B][WORDS];
      for (int b = 0; b < B; b++)
        for (int i = 0; i < WORDS; i++)
          word[b][i] = load_words(w + (b * words + k / NUMBERS * WORDS + i) * LANES);
      if constexpr (Code::HAS_NAN)
        for (int b = 0; b < B; b++) nans[b] = nans[b] | Code::nans(word[b]);
      for (int i = 0; i < WORDS; i++)
        ask_for<M, B>(w + (k / NUMBERS * WORDS + i) * LANES, behind, words * WORD);
      unrolled<NUMBERS>([&](auto j) __attribute__((always_inline)) {
        constexpr int J = decltype(j)::value;
        F value[B];
        for (int b = 0; b < B; b++) value[b] = Code::template value<J>(word[b], table);
        for (int m = 0; m < M; m++) {
          const F number = set(*at<M>(x, run, k + J, m));
          for (int b = 0; b < B; b++) {
            part[m][b] = fma(value[b], number, part[m][b]);
            if constexpr (M > 1) part[m][b] = in_turn(part[m][b]);
          }
        }
      });
    }
    if constexpr (M == 1) ask_for_scales<M, B, Code::BIASED>(matrix, block, g, groups);
    F scale[B], bias[B];
    load_group<B, Code::BIASED>(matrix, block, g, groups, scale, bias);
    for (int b = 0; b < B; b++) {
      if constexpr (Code::HAS_NAN) scale[b] = Code::spoiled(scale[b], nans[b]);
      const F unit = Code::UNIT == 1 ? scale[b] : scale[b] * set(Code::UNIT);
      for (int m = 0; m < M; m++) total[m][b] = fma(part[m][b], unit, total[m][b]);
      if constexpr (Code::BIASED) {
        bias[b] = fma(scale[b], set(Code::MIDDLE), bias[b]);
        for (int m = 0; m < M; m++)
          total[m][b] = fma(bias[b], set(sums[int64_t{m} * groups + g]), total[m][b]);
      }
    }
  }
  write(matrix, block, total, out);
}

/* Four bytes of weights without sign for each lane, part P of a step; what they meet has the order
 * of place_group(). */
template <class Code, int BITS, int P>
COWMLX_INLINE I bytes(const I* words, I table) {
  if constexpr (BITS == 8) {
    return words[0];
  } else if constexpr (BITS == 4) {
    const I nibbles = shift_right<4 * P>(words[0]) & set_word(0x0f0f0f0f);
    if constexpr (Code::BIASED)
      return nibbles;
    else
      return lookup_bytes(table, nibbles);
  } else if constexpr (BITS == 2) {
    return shift_right<2 * P>(words[0]) & set_word(0x03030303);
  } else {
    using Own = Packing<BITS>;
    return Own::template number<4 * P>(words) |
           shift_left<8>(Own::template number<4 * P + 1>(words)) |
           shift_left<16>(Own::template number<4 * P + 2>(words)) |
           shift_left<24>(Own::template number<4 * P + 3>(words));
  }
}

template <class Code>
COWMLX_INLINE I bytes_table() {
  uint8_t values[16];
  for (int i = 0; i < 16; i++) values[i] = static_cast<uint8_t>(TWICE_E2M1[i] + E2M1_OFFSET);
  return set_table(values);
}

#ifdef COWMLX_PAIRS
/* int8_products() of four rows and one block, eight numbers of each at a time. */
template <class Code, int BITS>
COWMLX_INLINE void paired_products(const uint32_t* w, I table, const uint32_t* x, int64_t step,
                                   I (&part)[4][1]) {
  constexpr int WORDS = Code::WORDS, PARTS = Code::NUMBERS / 4;
  constexpr int UNITS = rounded_together(Code::BIASED) / 4;
  w += step * WORDS * LANES;
  x += step * PARTS * 4;
  const auto weight = [&](auto u) __attribute__((always_inline)) {
    constexpr int U = decltype(u)::value;
    I word[WORDS];
    for (int i = 0; i < WORDS; i++) word[i] = load_words(w + (U / PARTS * WORDS + i) * LANES);
    return bytes<Code, BITS, U % PARTS>(word, table);
  };
  Pairs sums = zero_pairs();
  unrolled<UNITS / 2>([&](auto pair) __attribute__((always_inline)) {
    constexpr int U = 2 * decltype(pair)::value;
    add_products(sums, weight(Constant<U>{}), weight(Constant<U + 1>{}), x + U * 4);
  });
  for (int m = 0; m < 4; m++) part[m][0] = sums_of(sums, m);
}
#endif

/* Sums of products of int8 numbers, of as many as are rounded together, from step `step` on; ASKS
 * for later ones. */
template <class Code, int BITS, int M, int B, bool ASKS>
COWMLX_INLINE void int8_products(const uint32_t* w, int64_t words, I table, const uint32_t* x,
                                 int64_t run, int64_t step, int64_t behind, I (&part)[M][B]) {
  constexpr int WORDS = Code::WORDS, PARTS = Code::NUMBERS / 4;
  constexpr int TOGETHER = rounded_together(Code::BIASED), STEPS = TOGETHER / Code::NUMBERS;
#ifdef COWMLX_PAIRS
  if constexpr (M == 4 && B == 1) return paired_products<Code, BITS>(w, table, x, step, part);
#endif
  for (int m = 0; m < M; m++)
    for (int b = 0; b < B; b++) part[m][b] = zero_words();
  const auto add = [&](int64_t here) __attribute__((always_inline)) {
    I word[B][WORDS];
    for (int b = 0; b < B; b++)
      for (int i = 0; i < WORDS; i++)
        word[b][i] = load_words(w + (b * words + here * WORDS + i) * LANES);
    if constexpr (ASKS)
      for (int i = 0; i < WORDS; i++)
        ask_for<M, B>(w + (here * WORDS + i) * LANES, behind, words * WORD);
    unrolled<PARTS>([&](auto p) __attribute__((always_inline)) {
      constexpr int P = decltype(p)::value;
      I weight[B];
      for (int b = 0; b < B; b++) weight[b] = bytes<Code, BITS, P>(word[b], table);
      for (int m = 0; m < M; m++) {
        const I number = broadcast(at<M>(x, run, here * PARTS + P, m));
        for (int b = 0; b < B; b++)
          part[m][b] = BITS == 8  ? dot4_wide(part[m][b], weight[b], number)
                       : BITS > 4 ? dot4(part[m][b], weight[b], number)
                                  : dot4_few(part[m][b], weight[b], number);
      }
    });
  };
  /* In a loop, GCC copies the sums of several rows from register to register. */
  constexpr bool UNROLLED = DOT4_IS_ONE || (M > 1 && (BITS == 4 || BITS == 8));
  if constexpr (UNROLLED)
    unrolled<STEPS>([&](auto s) __attribute__((always_inline)) { add(step + decltype(s)::value); });
  else
    for (int s = 0; s < STEPS; s++) add(step + s);
  if constexpr (BITS <= 4)
    for (int m = 0; m < M; m++)
      for (int b = 0; b < B; b++) part[m][b] = few(part[m][b]);
}

/* Quantized weights and int8 activations: sums of numbers rounded together are exact integers. */
template <class Code, int BITS, int M, int B, bool ASKS>
static void int8_tile(const Matrix& matrix, const int8_t* x, int64_t run, const float* scales,
                      const float* sums, int block, const Output& out) {
  constexpr int TOGETHER = rounded_together(Code::BIASED), STEPS = TOGETHER / Code::NUMBERS;
  const int groups = matrix.columns / matrix.group, parts = matrix.columns / TOGETHER;
  const int64_t words = int64_t{matrix.columns} / Code::NUMBERS * Code::WORDS;
  const uint32_t* w = static_cast<const uint32_t*>(matrix.weight) + block * words * LANES;
  const auto* units = reinterpret_cast<const uint32_t*>(x);
  const I table = bytes_table<Code>();
  const Asking<B> asking(words * WORD, ahead<M>());
  F total[M][B];
  for (int m = 0; m < M; m++)
    for (int b = 0; b < B; b++) total[m][b] = zero();
  for (int g = 0, p = 0; g < groups; g++) {
    F value[M][B];
    for (int m = 0; m < M; m++)
      for (int b = 0; b < B; b++) value[m][b] = zero();
    for (const int end = p + matrix.group / TOGETHER; p < end; p++) {
      I part[M][B];
      const int64_t step = int64_t{p} * STEPS, behind = asking.at(step * Code::WORDS * WORD);
      int8_products<Code, BITS, M, B, ASKS>(w, words, table, units, run, step, behind, part);
      for (int m = 0; m < M; m++) {
        const F scale = set(scales[int64_t{m} * parts + p]);
        for (int b = 0; b < B; b++) value[m][b] = fma(convert(part[m][b]), scale, value[m][b]);
      }
    }
    if constexpr (M == 1) ask_for_scales<M, B, Code::BIASED>(matrix, block, g, groups);
    F scale[B], bias[B];
    load_group<B, Code::BIASED>(matrix, block, g, groups, scale, bias);
    for (int b = 0; b < B; b++) {
      if constexpr (!Code::BIASED) { /* bytes are 2 w + 12 */
        scale[b] = scale[b] * set(0.5f);
        bias[b] = scale[b] * set(static_cast<float>(-E2M1_OFFSET));
      } else if constexpr (BITS == 8 && WIDE_MIDDLE != 0) {
        bias[b] = fma(scale[b], set(WIDE_MIDDLE), bias[b]);
      }
      for (int m = 0; m < M; m++)
        total[m][b] = fma(bias[b], set(sums[int64_t{m} * groups + g]),
                          fma(scale[b], value[m][b], total[m][b]));
    }
  }
  write(matrix, block, total, out);
}

/* One product under way: what tiles need besides their place. */
struct Task {
  const Matrix& matrix;
  const Prepared& prepared;
  float* y;
  int64_t stride;
  int row, row_end;

  Output from(int row) const { return {y + row * stride, stride, row_end - row}; }
  int64_t groups() const { return matrix.columns / matrix.group; }
};

/* The largest tiles: as many sums as registers hold, beside what is multiplied. */
constexpr bool MANY_REGISTERS = VECTORS >= 32;
constexpr int STEP = 4; /* blocks whose weights are read from memory once for all rows */

/* Blocks from `block` to `end`, at most STEP, for M rows. */
template <class Kind, int M, int B>
COWMLX_INLINE void blocks(const Task& task, int row, int block, int end) {
  for (; block + B <= end; block += B) Kind::template tile<M, B>(task, row, block);
  constexpr int ONE = M == 1 ? 1 : 4;
  if constexpr (B > 1)
    for (; block < end; block++)
      for (int m = 0; m < M && row + m < task.row_end; m += ONE)
        Kind::template tile<ONE, 1>(task, row + m, block);
}

/* Rows from `row` (a multiple of 4) on. Blocks are the outer loop, so that weights are read once.
 */
template <class Kind>
static void product_of(const Task& task, int from, int to, int row) {
  constexpr bool WIDE = MANY_REGISTERS && !Kind::RARE;
  const bool one_stream = Kind::STREAMS && task.matrix.bits <= one_row.stream_bits &&
                          __atomic_load_n(&one_row.one_stream, __ATOMIC_RELAXED);
  for (int block = from; block < to; block += STEP) {
    const int end = block + STEP < to ? block + STEP : to;
    int r = row;
    if (task.prepared.rows == 1 && one_stream) {
      blocks<Kind, 1, 1>(task, r, block, end);
      continue;
    }
    if (task.prepared.rows == 1) {
      blocks<Kind, 1, Kind::ONE_ROW>(task, r, block, end);
      continue;
    }
    if constexpr (WIDE && !Kind::INTEGER) {
      for (; r + 12 <= task.row_end; r += 12) blocks<Kind, 12, 2>(task, r, block, end);
      for (; r + 4 < task.row_end; r += 8) blocks<Kind, 8, 2>(task, r, block, end);
    }
    for (; r < task.row_end; r += 4)
      blocks<Kind, 4, !WIDE ? 1 : Kind::INTEGER ? 2 : 4>(task, r, block, end);
  }
}

}  // namespace cowmlx::ISA
