/* Sizes of convolutions, channels last, and where each result reads its input. */
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "table.h"

namespace cowmlx {

constexpr size_t AXES = 3; /* fewer spatial axes have others of length 1 before them */
constexpr int SHORTEST_LINE = 4, LONGEST_LINE = 96; /* results of parts of lines */

using Three = std::array<int, AXES>;

/* Sizes and options of a convolution. */
struct ConvolutionShape {
  int images, channels, outputs, groups;
  Three in, out, kernel, stride, before, after, dilation, spread; /* before, after: zeros */
  bool flip;

  int64_t results() const { return int64_t{images} * out[0] * out[1] * out[2]; }
  int taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int group_channels() const { return channels / groups; }
  /* Output n reads channel n alone. */
  bool is_depthwise() const { return groups > 1 && groups == channels && groups == outputs; }
  /* The matrix of each group; that of all where each channel is one. */
  int matrices() const { return is_depthwise() ? 1 : groups; }
  int rows() const { return outputs / matrices(); }
  int columns() const { return taps() * group_channels(); }
  int blocks() const { return (rows() + LANES - 1) / LANES; }
  int64_t matrix_numbers() const { return int64_t{blocks()} * columns() * LANES; }

  /* Where a window of an axis begins if the axis, with zeros between its numbers, has no ends. */
  int begin(size_t axis, int result) const { return result * stride[axis] - before[axis]; }
  /* How far weight `tap` reads behind that, and the last of all. */
  int behind(size_t axis, int tap) const {
    return (flip ? kernel[axis] - 1 - tap : tap) * dilation[axis];
  }
  int reach(size_t axis) const { return (kernel[axis] - 1) * dilation[axis]; }
  int position(size_t axis, int result, int tap) const {
    return begin(axis, result) + behind(axis, tap);
  }
  bool is_spread() const {
    return std::ranges::any_of(spread, [](int n) { return n > 1; });
  }
  /* Whether windows of results from `first` to `last` read no zeros. */
  bool is_inside(size_t axis, int first, int last) const {
    return begin(axis, first) >= 0 && begin(axis, last) + reach(axis) < in[axis];
  }
  /* Whether no window reads zeros. */
  bool is_inside() const {
    return is_inside(0, 0, out[0] - 1) && is_inside(1, 0, out[1] - 1) &&
           is_inside(2, 0, out[2] - 1);
  }

  /* Whether kernels for lines compute it. */
  bool is_in_lines() const {
    const int after = out[2] + LINE_TAPS - 1 - in[2] - before[2];
    const bool is_near = before[2] >= 0 && before[2] <= 1 && after >= 0 && after <= 1;
    return groups == 1 && is_near && kernel[2] == LINE_TAPS && stride[2] == 1 && dilation[2] == 1 &&
           spread[2] == 1 && out[2] >= SHORTEST_LINE;
  }
  /* Parts of a line, and of all lines. */
  int line_parts() const { return (out[2] + LONGEST_LINE - 1) / LONGEST_LINE; }
  int64_t all_parts() const { return int64_t{images} * out[0] * out[1] * line_parts(); }
  /* Weights of a window's part along the last axis. */
  int other_taps() const { return kernel[0] * kernel[1]; }

  /* Where weight `tap` of an axis reads for a result; -1: a zero. */
  int place(size_t axis, int result, int tap) const {
    const int at = position(axis, result, tap);
    if (at < 0) return -1;
    if (spread[axis] == 1) return at < in[axis] ? at : -1;
    return at % spread[axis] == 0 && at / spread[axis] < in[axis] ? at / spread[axis] : -1;
  }
};

/* A part of all lines of results. */
struct LinePart {
  int64_t line;
  int first, end; /* results of the line */

  LinePart() = default;
  LinePart(const ConvolutionShape& shape, int64_t index) {
    const int many = shape.line_parts();
    const int64_t part = index % many, length = shape.out[2];
    line = index / many;
    first = static_cast<int>(length * part / many);
    end = static_cast<int>(length * (part + 1) / many);
  }
  int64_t result(const ConvolutionShape& shape) const { return line * shape.out[2] + first; }
};

/* Where a tap of the last axis reads a line for `count` results from `result` on; null: a line of
 * zeros. */
inline void put_places(const ConvolutionShape& shape, const float* line, int result, int tap,
                       int count, const float* zeros, const float** to) {
  if (line == nullptr) {
    std::fill_n(to, count, zeros);
  } else if (shape.spread[2] > 1) {
    for (int r = 0; r < count; r++) {
      const int at = shape.place(2, result + r, tap);
      to[r] = at < 0 ? zeros : line + int64_t{at} * shape.channels;
    }
  } else {
    const int stride = shape.stride[2], in = shape.in[2];
    const int64_t step = int64_t{stride} * shape.channels;
    int at = shape.position(2, result, tap), r = 0;
    for (; r < count && at < 0; r++, at += stride) to[r] = zeros;
    const int left = stride == 1 ? in - at : (in - 1 - at) / stride + 1;
    const int inside = at < in ? std::min(count, r + left) : r;
    const float* from = line + int64_t{at} * shape.channels;
    for (; r < inside; r++, from += step) to[r] = from;
    for (; r < count; r++) to[r] = zeros;
  }
}

/* The image and the position of a result. */
struct ResultPlace {
  int image;
  Three at;

  ResultPlace() = default;
  ResultPlace(const ConvolutionShape& shape, int64_t index) {
    for (size_t axis = AXES; axis-- > 0; index /= shape.out[axis])
      at[axis] = static_cast<int>(index % shape.out[axis]);
    image = static_cast<int>(index);
  }

  void advance(const ConvolutionShape& shape, int length = 1) {
    at[AXES - 1] += length - 1; /* within a line */
    for (size_t axis = AXES; axis-- > 0;) {
      if (++at[axis] < shape.out[axis]) return;
      at[axis] = 0;
    }
    image++;
  }
};

/* A line along the last axis of an image, for a tap of the axes before; null: zeros. */
inline const float* line(const ConvolutionShape& shape, const float* x, const ResultPlace& result,
                         int depth, int height) {
  const int d = shape.place(0, result.at[0], depth), h = shape.place(1, result.at[1], height);
  if (d < 0 || h < 0) return nullptr;
  const int64_t index = (int64_t{result.image} * shape.in[0] + d) * shape.in[1] + h;
  return x + index * shape.in[2] * shape.channels;
}

/* Sizes of an input that lies in memory, channels last. */
struct Extent {
  int64_t height, width, channels;

  int64_t index(int64_t depth, int64_t line, int64_t number) const {
    return ((depth * height + line) * width + number) * channels;
  }
};

}  // namespace cowmlx
