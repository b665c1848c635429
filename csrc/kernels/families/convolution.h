/* Convolutions as sums over taps: of all channels with a matrix, or of each channel for itself.
 * Windows are read where they lie. Meanings in table.h. The including file has chosen an
 * instruction set. */
#pragma once

#include "beside.h"
#include "tiles.h"

namespace cowmlx::ISA {

/* Add U columns of M windows, times those of B blocks that are `next` numbers apart. */
template <int M, int B, int U>
COWMLX_INLINE void window_columns(const float* const* places, int channel, const float* w,
                                  int64_t next, int64_t behind, F (&total)[M][B]) {
  F weight[U][B];
  for (int u = 0; u < U; u++) {
    for (int b = 0; b < B; b++) weight[u][b] = load(w + b * next + u * LANES);
    ask_for<M, B>(w + u * LANES, behind, next * 4);
  }
  /* Registers cannot hold 12 pointers beside the sums: each use reads its pointer again. */
  if constexpr (M > 8) __asm__("" : "+r"(places));
  for (int m = 0; m < M; m++)
    for (int u = 0; u < U; u++) {
      const F value = set(places[m][channel + u]);
      for (int b = 0; b < B; b++) total[m][b] = fma(weight[u][b], value, total[m][b]);
    }
}

/* M windows, from number `first` on, with B blocks of a matrix. The order of a product's sums. */
template <int M, int B>
static void window_tile(const Matrix& matrix, const Windows& windows, int first, int block,
                        const Output& out) {
  /* Columns for which a pointer is read once. */
  constexpr int U = M > 8 ? 4 / B : 1;
  const int channels = matrix.columns / windows.taps;
  const int64_t next = int64_t{matrix.columns} * LANES;
  const float* w = static_cast<const float*>(matrix.weight) + block * next;
  const float* const* places = windows.places + first;
  F total[M][B];
  for (int m = 0; m < M; m++)
    for (int b = 0; b < B; b++) total[m][b] = zero();
  const Asking<B> asking(next * 4, ahead<M>());
  int64_t behind = asking.behind;
  int left = B == 1 ? matrix.columns : static_cast<int>(asking.own(LANES * 4)), tap = 0;
  do {
    int channel = 0;
    do {
      if (B > 1 && left == 0) {
        behind = asking.next();
        left = matrix.columns;
      }
      const int end = B > 1 && left < channels - channel ? channel + left : channels;
      left -= end - channel;
      for (; channel + U <= end; channel += U, w += U * LANES)
        window_columns<M, B, U>(places, channel, w, next, behind, total);
      for (; channel < end; channel++, w += LANES)
        window_columns<M, B, 1>(places, channel, w, next, behind, total);
    } while (channel < channels);
    places += WINDOWS;
  } while (++tap < windows.taps);
  write(matrix, block, total, out);
}

/* All blocks for M windows, B at a time. */
template <int M, int B>
COWMLX_INLINE void window_blocks(const Matrix& matrix, const Windows& windows, int first, int from,
                                 int to, const Output& out) {
  for (; from + B <= to; from += B) window_tile<M, B>(matrix, windows, first, from, out);
  if constexpr (B > 1)
    for (; from < to; from++) window_tile<M, 1>(matrix, windows, first, from, out);
}

/* Windows of a tile where registers cannot hold the sums of all WINDOWS. */
constexpr int FEWER_WINDOWS = VECTORS >= 8 ? 6 : 2;

static void multiply_windows(const Matrix& matrix, const Windows& windows, int from, int to,
                             bool positive, float* y, int64_t stride) {
  const Output out{y, stride, windows.count, positive};
  if constexpr (MANY_REGISTERS) {
    if (windows.count > 8) {
      for (; from + 4 <= to; from += 4)
        for (int m = 0; m < WINDOWS; m += 6)
          window_tile<6, 4>(matrix, windows, m, from,
                            {y + m * stride, stride, windows.count - m, positive});
      return window_blocks<12, 2>(matrix, windows, 0, from, to, out);
    }
    if (windows.count > 4) return window_blocks<8, 2>(matrix, windows, 0, from, to, out);
    window_blocks<4, 4>(matrix, windows, 0, from, to, out);
  } else {
    for (int m = 0; m < windows.count; m += FEWER_WINDOWS)
      window_blocks<FEWER_WINDOWS, 1>(matrix, windows, m, from, to,
                                      {y + m * stride, stride, windows.count - m, positive});
  }
}

/* The outer products of M numbers of each window, of a tap from `channel` on, with B blocks of its
 * row of `by`. */
template <int M, int B>
static void outer_tile(const Windows* units, int many, int tap, int channel, const float* by,
                       int64_t stride, float* sums) {
  F total[M][B];
  for (int m = 0; m < M; m++)
    for (int b = 0; b < B; b++) total[m][b] = zero();
  for (int unit = 0; unit < many; unit++) {
    const float* const* places = units[unit].places + int64_t{tap} * WINDOWS;
    for (int window = 0; window < units[unit].count; window++, by += stride) {
      const float* from = places[window] + channel;
      __asm__("" : "+r"(from)); /* GCC would keep a register for each number's offset */
      F row[B];
      for (int b = 0; b < B; b++) row[b] = load(by + b * LANES);
      for (int m = 0; m < M; m++) {
        const F value = set(from[m]);
        for (int b = 0; b < B; b++) total[m][b] = fma(row[b], value, total[m][b]);
      }
    }
  }
  for (int m = 0; m < M; m++, sums += stride)
    for (int b = 0; b < B; b++) store(sums + b * LANES, load(sums + b * LANES) + total[m][b]);
}

/* Columns [from, to) of a tap with B blocks, M at a time and the last ones in smaller tiles. */
template <int M, int B>
COWMLX_INLINE void outer_columns(const Windows* units, int many, int tap, int from, int to,
                                 const float* by, int64_t stride, float* sums) {
  for (; from + M <= to; from += M, sums += M * stride)
    outer_tile<M, B>(units, many, tap, from, by, stride, sums);
  if constexpr (M > 1) outer_columns<(M + 2) / 3, B>(units, many, tap, from, to, by, stride, sums);
}

COWMLX_KERNEL void outer_products(const Windows* units, int many, int channels, int from, int to,
                                  const float* by, int blocks, float* sums) {
  constexpr int M = MANY_REGISTERS ? 12 : FEWER_WINDOWS, B = MANY_REGISTERS ? 2 : 1;
  const int64_t stride = int64_t{blocks} * LANES;
  while (from < to) { /* the columns of a tap */
    const int tap = from / channels, first = from % channels;
    const int count = channels - first < to - from ? channels - first : to - from;
    int block = 0;
    for (; block + B <= blocks; block += B)
      outer_columns<M, B>(units, many, tap, first, first + count, by + block * LANES, stride,
                          sums + block * LANES);
    if (block < blocks)
      outer_columns<M, 1>(units, many, tap, first, first + count, by + block * LANES, stride,
                          sums + block * LANES);
    from += count;
    sums += count * stride;
  }
}

/* M windows of a line, from number `first` on, with a block of a matrix: a number is read once for
 * all windows that it is in. */
template <int M>
static void line_tile(const Matrix& matrix, const WindowLines& lines, const float* const* inputs,
                      int first, int block, const Output& out) {
  const int channels = lines.channels, begin = first - lines.before;
  const int64_t tap = int64_t{channels} * LANES, next = lines.flip ? -tap : tap;
  const float* w =
      static_cast<const float*>(matrix.weight) + int64_t{block} * matrix.columns * LANES;
  const float* const end = w + int64_t{matrix.columns} * LANES;
  if (lines.flip) w += (LINE_TAPS - 1) * tap;
  F total[M][1];
  for (int m = 0; m < M; m++) total[m][0] = zero();
  for (; w < end; w += LINE_TAPS * tap, inputs++) {
    if (*inputs == nullptr) continue;
    const float* inside = *inputs + int64_t{begin + 1} * channels;
    const float* left = begin < 0 ? lines.zeros : inside - channels;
    const float* right =
        begin + M + 1 < lines.length ? inside + int64_t{M} * channels : lines.zeros;
    const float* by = w;
    for (int channel = 0; channel < channels; channel++, by += LANES) {
      const F weight[LINE_TAPS] = {load(by), load(by + next), load(by + 2 * next)};
      const float* from = inside + channel;
      unrolled<M + 2>([&](auto index) __attribute__((always_inline)) {
        constexpr int N = decltype(index)::value;
        const F value = set(N == 0 ? left[channel] : N == M + 1 ? right[channel] : *from);
        for (int k = 0; k < LINE_TAPS; k++)
          if (N >= k && N - k < M) total[N - k][0] = fma(weight[k], value, total[N - k][0]);
        if (N > 0) from += channels;
        __asm__("" : "+r"(from)); /* GCC would keep a register for each number's offset */
      });
    }
  }
  write(matrix, block, total, out);
}

/* Windows of a tile, at most: registers hold their sums beside the weights of LINE_TAPS taps. */
constexpr int LINE_WINDOWS = MANY_REGISTERS ? 16 : VECTORS >= 8 ? 4 : 2;

/* All windows in tiles of M, of which the last begins in the one before where they do not fit. */
template <int M>
COWMLX_INLINE void line_tiles(int wanted, const Matrix& matrix, const WindowLines& lines,
                              const float* const* inputs, int first, int count, int block,
                              const Output& out) {
  if constexpr (M > 2)
    if (wanted < M)
      return line_tiles<M - 1>(wanted, matrix, lines, inputs, first, count, block, out);
  for (int at = 0; at < count; at += M) {
    const int own = at + M <= count ? at : count - M;
    line_tile<M>(matrix, lines, inputs, first + own, block,
                 {out.y + own * out.stride, out.stride, M, out.positive});
  }
}

COWMLX_KERNEL void multiply_line(const Matrix& matrix, const WindowLines& lines,
                                 const float* const* inputs, int first, int count, int from, int to,
                                 bool positive, float* y, int64_t stride) {
  const int tiles = (count + LINE_WINDOWS - 1) / LINE_WINDOWS, wanted = (count + tiles - 1) / tiles;
  for (; from < to; from++)
    line_tiles<LINE_WINDOWS>(wanted, matrix, lines, inputs, first, count, from,
                             {y, stride, count, positive});
}

/* The outer products of M channels with a block of `by`, of K numbers of each window from `tap` on.
 * Each number of a line meets the gradients of all windows that it is in. */
template <int M, int K>
static void outer_line_tile(const WindowLines& lines, const WindowLine* line, int many, int tap,
                            int channel, int block, int64_t stride, float* sums) {
  const int shift = lines.before - tap; /* from a number to the last window that it is in */
  F total[K][M];
  for (int k = 0; k < K; k++)
    for (int m = 0; m < M; m++) total[k][m] = zero();
  for (; many > 0; many--, line++) {
    if (line->input == nullptr) continue;
    const int begin = line->first > shift ? line->first - shift : 0;
    const auto inside = [&lines](int at) { return at < lines.length ? at : lines.length; };
    const int last = inside(line->end - shift), end = inside(line->end - shift + K - 1);
    const float* from = line->input + int64_t{begin} * lines.channels + channel;
    const float* by = line->by + block * LANES + (begin + shift - line->first) * stride;
    F row[K];
    for (int k = 1; k < K; k++)
      row[k - 1] = begin + shift - k >= line->first ? load(by - k * stride) : zero();
    const auto add = [&](F next) {
      for (int k = K - 1; k > 0; k--) row[k] = row[k - 1];
      row[0] = next;
      for (int m = 0; m < M; m++) {
        const F value = set(from[m]);
        for (int k = 0; k < K; k++) total[k][m] = fma(row[k], value, total[k][m]);
      }
      from += lines.channels;
    };
    int at = begin;
    for (; at < last; at++, by += stride) add(load(by));
    for (; at < end; at++) add(zero());
  }
  for (int k = 0; k < K; k++) {
    const int column = (lines.flip ? LINE_TAPS - 1 - tap - k : tap + k) * lines.channels + channel;
    float* to = sums + column * stride + block * LANES;
    for (int m = 0; m < M; m++, to += stride) store(to, load(to) + total[k][m]);
  }
}

/* Channels from one on, M at a time and the last ones in smaller tiles. */
template <int M, int K>
COWMLX_INLINE void outer_line_channels(const WindowLines& lines, const WindowLine* line, int many,
                                       int tap, int channel, int block, int64_t stride,
                                       float* sums) {
  for (; channel + M <= lines.channels; channel += M)
    outer_line_tile<M, K>(lines, line, many, tap, channel, block, stride, sums);
  if constexpr (M > 1)
    outer_line_channels<(M + 2) / 3, K>(lines, line, many, tap, channel, block, stride, sums);
}

COWMLX_KERNEL void outer_lines(const WindowLines& lines, const WindowLine* line, int many,
                               int blocks, float* sums) {
  constexpr int K = MANY_REGISTERS ? LINE_TAPS : 1, M = MANY_REGISTERS ? 8 : FEWER_WINDOWS;
  for (int block = 0; block < blocks; block++)
    for (int tap = 0; tap < LINE_TAPS; tap += K)
      outer_line_channels<M, K>(lines, line, many, tap, 0, block, int64_t{blocks} * LANES, sums);
}

/* M windows, from number `first` on: `lanes` channels from i on, over all taps. */
template <int M>
COWMLX_INLINE void channels(const Windows& windows, int first, const float* weight, int i,
                            int lanes, const float* bias, bool positive, float* y, int64_t stride) {
  const auto numbers = [lanes](const float* from) {
    return lanes == LANES ? load(from) : load(from, lanes);
  };
  const float* const* places = windows.places + first;
  const float* w = weight + int64_t{i} * windows.taps;
  F total[M];
  for (F& sum : total) sum = zero();
  for (int tap = 0; tap < windows.taps; tap++, places += WINDOWS, w += LANES) {
    const F by = load(w);
    for (int m = 0; m < M; m++) total[m] = fma(numbers(places[m] + i), by, total[m]);
  }
  for (int m = 0; m < M && first + m < windows.count; m++) {
    F value = bias == nullptr ? total[m] : total[m] + numbers(bias + i);
    if (positive) value = max(zero(), value);
    float* to = y + (first + m) * stride + i;
    if (lanes == LANES)
      store(to, value);
    else
      store(to, value, lanes);
  }
}

COWMLX_KERNEL void by_channels(const Windows& windows, const float* weight, int n,
                               const float* bias, bool positive, float* y, int64_t stride) {
  constexpr int M = MANY_REGISTERS ? 12 : FEWER_WINDOWS;
  for (int first = 0; first < windows.count; first += M) {
    int i = 0;
    for (; i + LANES <= n; i += LANES)
      channels<M>(windows, first, weight, i, LANES, bias, positive, y, stride);
    if (i < n) channels<M>(windows, first, weight, i, n - i, bias, positive, y, stride);
  }
}

}  // namespace cowmlx::ISA

#undef COWMLX_SHUFFLE
