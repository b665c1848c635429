/* Convolutions as sums over taps: of all channels with a matrix, or of each channel for itself.
 * Windows are read where they lie. Meanings in table.h. The including file has chosen an
 * instruction set. */
#pragma once

#include "beside.h"
#include "tiles.h"

namespace cowmlx::ISA {

/* M windows, from number `first` on, with B blocks of a matrix. The order of a product's sums. */
template <int M, int B>
static void window_tile(const Matrix& matrix, const Windows& windows, int first, int block,
                        const Output& out) {
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
      do {
        F weight[B];
        for (int b = 0; b < B; b++) weight[b] = load(w + b * next);
        ask_for<M, B>(w, behind, next * 4);
        const float* const* here = places;
        /* Registers cannot hold 12 pointers beside the sums: each use reads its pointer again. */
        if constexpr (M > 8) __asm__("" : "+r"(here));
        for (int m = 0; m < M; m++) {
          const F value = set(here[m][channel]);
          for (int b = 0; b < B; b++) total[m][b] = fma(weight[b], value, total[m][b]);
        }
        w += LANES;
      } while (++channel < end);
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
