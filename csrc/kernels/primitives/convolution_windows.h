/* Where the windows of a convolution read its input, channels last. They are read where they lie:
 * no window is copied. A thread may copy the input's lines that it reads, with zeros at their ends.
 */
#pragma once

#include "convolution_shape.h"
#include "table.h"

namespace cowmlx {

constexpr int MOST_UNITS = 20;       /* of WINDOWS results that a thread computes at once */
constexpr int MOST_PLACES = 1 << 13; /* of a thread's windows, so that a core's cache holds them */
constexpr int64_t MOST_LINES = 1 << 16; /* numbers of lines that a thread copies at once */

struct ConvolutionWindows {
  ConvolutionShape shape;
  const float* x;
  float* zeros; /* as many as the longest tap has numbers */

  int zero_numbers() const { return shape.channels * (shape.groups == 1 ? shape.kernel[2] : 1); }
  int64_t unit_places() const { return int64_t{shape.taps()} * WINDOWS; }
  WindowLines lines_of() const {
    return {zeros, shape.channels, shape.in[2], shape.before[2], shape.flip};
  }

  /* A line as it is copied. */
  static Extent copied_line(const ConvolutionShape& shape) {
    const int64_t width = int64_t{shape.out[2] - 1} * shape.stride[2] + shape.reach(2) + 1;
    return {1, width, shape.is_depthwise() ? shape.channels : shape.group_channels()};
  }

  /* How many lines the windows of so many units read, at most. 0: they are not to be copied, since
   * they are inside, lie apart or are too long. */
  static int64_t count_lines(const ConvolutionShape& shape, int units) {
    const bool is_flat =
        shape.kernel[0] == 1 && shape.in[0] == 1 && shape.out[0] == 1 && shape.before[0] == 0;
    if (!is_flat || shape.is_inside() || shape.is_spread()) return 0;
    const int64_t tile = int64_t{units} * WINDOWS, rows = (tile - 1) / shape.out[2] + 2;
    const int64_t images = (tile - 1) / (int64_t{shape.out[1]} * shape.out[2]) + 2;
    const int64_t count = rows * shape.stride[1] + images * (shape.reach(1) + 1);
    return count > MOST_LINES / copied_line(shape).index(0, 1, 0) ? 0 : count;
  }

  /* Find the windows of `count` results from `next` on, and move `next` behind them. The last
   * window is repeated up to WINDOWS. If `joins`, taps of the last axis that lie beside each other
   * become one tap, with the channels of all. */
  Windows find(ResultPlace& next, int count, int group, bool joins, const float** places) const {
    const int offset = group * shape.group_channels(), width = shape.kernel[2];
    bool is_one = joins && shape.groups == 1 && shape.dilation[2] == 1 && !shape.flip;
    bool is_inside = !shape.is_spread();
    ResultPlace results[WINDOWS]; /* the first ones of lines of results */
    int begins[WINDOWS + 1], lines = 0;
    for (int at = 0; at < count; lines++) {
      const int length = std::min(count - at, shape.out[2] - next.at[2]);
      is_one =
          is_one && shape.spread[2] == 1 && shape.is_inside(2, next.at[2], next.at[2] + length - 1);
      is_inside = is_inside && shape.is_inside(2, next.at[2], next.at[2] + length - 1) &&
                  shape.is_inside(1, next.at[1], next.at[1]) &&
                  shape.is_inside(0, next.at[0], next.at[0]);
      results[lines] = next;
      begins[lines] = at;
      at += length;
      next.advance(shape, length);
    }
    begins[lines] = count;
    if (is_inside) {
      const Extent all{shape.in[1], shape.in[2], shape.channels};
      const float* firsts[WINDOWS];
      for (int i = 0; i < lines; i++) {
        const ResultPlace& result = results[i];
        const float* from =
            x + offset +
            all.index(int64_t{result.image} * shape.in[0] + shape.begin(0, result.at[0]),
                      shape.begin(1, result.at[1]), shape.begin(2, result.at[2]));
        for (int at = begins[i]; at < begins[i + 1]; at++, from += shape.stride[2] * all.channels)
          firsts[at] = from;
      }
      return windows_at(firsts, count, all, joins, places);
    }
    const int taps = is_one ? 1 : width;
    const float** to = places;
    for (int depth = 0; depth < shape.kernel[0]; depth++)
      for (int height = 0; height < shape.kernel[1]; height++, to += taps * WINDOWS)
        for (int i = 0; i < lines; i++) {
          const float* from = line(shape, x, results[i], depth, height);
          if (from != nullptr) from += offset;
          for (int tap = 0; tap < taps; tap++)
            put_places(shape, from, results[i].at[2], tap, begins[i + 1] - begins[i], zeros,
                       to + tap * WINDOWS + begins[i]);
        }
    const Windows found{places, shape.kernel[0] * shape.kernel[1] * taps, count};
    for (int tap = 0; tap < found.taps; tap++, places += WINDOWS)
      std::fill(places + count, places + WINDOWS, places[count - 1]);
    return found;
  }

  /* Windows that begin at such places of an input and read no zeros. The last one is repeated up to
   * WINDOWS. */
  Windows windows_at(const float* const* firsts, int count, const Extent& input, bool joins,
                     const float** places) const {
    const float* all[WINDOWS];
    for (int i = 0; i < WINDOWS; i++) all[i] = firsts[std::min(i, count - 1)];
    const bool is_one =
        joins && input.channels == shape.group_channels() && shape.dilation[2] == 1 && !shape.flip;
    const int taps = is_one ? 1 : shape.kernel[2];
    const float** to = places;
    for (int depth = 0; depth < shape.kernel[0]; depth++)
      for (int height = 0; height < shape.kernel[1]; height++)
        for (int tap = 0; tap < taps; tap++, to += WINDOWS) {
          const int64_t by =
              input.index(shape.behind(0, depth), shape.behind(1, height), shape.behind(2, tap));
          for (int i = 0; i < WINDOWS; i++) to[i] = all[i] + by;
        }
    return {places, shape.kernel[0] * shape.kernel[1] * taps, count};
  }

  /* Copy lines of an image from position `first` on, with the zeros that windows read; of the
   * channels from `offset` on as many as there are. */
  void copy_lines(int image, int first, int64_t lines, int offset, const Extent& to,
                  float* out) const {
    const int64_t front = std::clamp<int64_t>(shape.before[2], 0, to.width);
    const int64_t skipped = std::clamp(-shape.before[2], 0, shape.in[2]);
    const int64_t count = std::min(to.width - front, shape.in[2] - skipped);
    for (int64_t y = first; y < first + lines; y++, out += to.width * to.channels) {
      if (y < 0 || y >= shape.in[1]) {
        std::fill_n(out, to.width * to.channels, 0.0F);
        continue;
      }
      const float* from =
          x + offset +
          ((image * int64_t{shape.in[1]} + y) * shape.in[2] + skipped) * shape.channels;
      float* next = std::fill_n(out, front * to.channels, 0.0F);
      if (to.channels == shape.channels) {
        next = std::copy_n(from, count * to.channels, next);
      } else {
        for (int64_t i = 0; i < count; i++, from += shape.channels)
          next = std::copy_n(from, to.channels, next);
      }
      std::fill(next, out + to.width * to.channels, 0.0F);
    }
  }

  /* Copy the lines that results [begin, end) read, and find out where each window begins there. */
  void lay(int64_t begin, int64_t end, int offset, const Extent& lines, float* out,
           const float** firsts) const {
    const int64_t image_results = int64_t{shape.out[1]} * shape.out[2];
    while (begin < end) {
      const ResultPlace first(shape, begin);
      const int64_t last = std::min(end, (first.image + 1) * image_results);
      ResultPlace next = first;
      for (; begin < last; begin++, next.advance(shape))
        *firsts++ = out + lines.index(0, (next.at[1] - first.at[1]) * shape.stride[1],
                                      next.at[2] * shape.stride[2]);
      const ResultPlace end_place(shape, last - 1);
      const int64_t count =
          (end_place.at[1] - first.at[1]) * int64_t{shape.stride[1]} + shape.reach(1) + 1;
      copy_lines(first.image, shape.begin(1, first.at[1]), count, offset, lines, out);
      out += lines.index(0, count, 0);
    }
  }

  /* Find the windows of results [begin, end) in units of WINDOWS, of which there are MOST_UNITS at
   * most. `joins`: taps of the last axis that lie beside each other become one tap.
   * `copied`: room for the lines that they read, or null to read them where they lie. */
  int find_all(int64_t begin, int64_t end, int group, bool joins, const float** places,
               float* copied, Windows* units) const {
    const float* firsts[MOST_UNITS * WINDOWS];
    const Extent lines = copied_line(shape);
    if (copied != nullptr) lay(begin, end, group * shape.group_channels(), lines, copied, firsts);
    ResultPlace next(shape, begin);
    int count = 0;
    for (int64_t at = begin; at < end; at += WINDOWS, count++, places += unit_places()) {
      const auto rows = static_cast<int>(std::min<int64_t>(WINDOWS, end - at));
      units[count] = copied != nullptr
                         ? windows_at(firsts + count * WINDOWS, rows, lines, joins, places)
                         : find(next, rows, group, joins, places);
    }
    return count;
  }
};

}  // namespace cowmlx
