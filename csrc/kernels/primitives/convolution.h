/* How a convolution is computed, channels last: as products of windows, which are read where they
 * lie, so that neither a padded input nor a window is ever copied. */
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "arrays.h"
#include "kept.h"
#include "pool.h"
#include "table.h"

namespace cowmlx {

constexpr size_t AXES = 3;            /* fewer spatial axes have others of length 1 before them */
constexpr int MOST_UNITS = 20;        /* of WINDOWS results that a thread computes at once */
constexpr int MOST_PLACES = 1 << 13;  /* of a thread's windows, so that a core's cache holds them */
constexpr int CACHED = 1 << 16;       /* numbers of weights that it holds beside them */
constexpr int MOST_COLUMNS = 1 << 16; /* numbers of a window */
constexpr int CHUNK = 1 << 15;        /* products of a chunk of channels: some µs */

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

  /* Where weight `tap` of an axis would read for a result if the axis, with zeros between its
   * numbers, had no ends. */
  int position(size_t axis, int result, int tap) const {
    const int turned = flip ? kernel[axis] - 1 - tap : tap;
    return result * stride[axis] + turned * dilation[axis] - before[axis];
  }

  /* Where weight `tap` of an axis reads for a result; -1: a zero. */
  int place(size_t axis, int result, int tap) const {
    const int at = position(axis, result, tap);
    if (at < 0) return -1;
    if (spread[axis] == 1) return at < in[axis] ? at : -1;
    return at % spread[axis] == 0 && at / spread[axis] < in[axis] ? at / spread[axis] : -1;
  }
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

template <size_t N>
void run(const std::optional<Copy> (&copies)[N]) {
  for (const std::optional<Copy>& copy : copies)
    if (copy) copy->run();
}

/* How results are divided among threads: each tile of results, each part of a group's blocks. */
struct ConvolutionCut {
  int units, tiles, parts; /* units of WINDOWS results are a tile */
  int step;                /* blocks of a part */

  explicit ConvolutionCut(const ConvolutionShape& shape) {
    const int64_t all = (shape.results() + WINDOWS - 1) / WINDOWS;
    const int64_t products = int64_t{shape.taps()} * shape.channels * WINDOWS;
    int64_t most = std::clamp(MOST_PLACES / (shape.taps() * WINDOWS), 1, MOST_UNITS);
    if (shape.is_depthwise()) most = std::clamp<int64_t>(CHUNK / products, 1, most);
    /* Weights that no cache holds are read once for as many results as possible. */
    const bool heavy = shape.matrix_numbers() > 4 * CACHED;
    units = static_cast<int>(std::clamp<int64_t>(heavy ? all : all / (4 * threads()), 1, most));
    tiles = static_cast<int>((all + units - 1) / units);
    const bool few = !shape.is_depthwise() && int64_t{tiles} * shape.groups < 2 * threads();
    step = few ? std::max(2, shape.blocks() / (4 * threads())) : shape.blocks();
    parts = (shape.blocks() + step - 1) / step;
  }
};

/* One evaluation. */
struct ConvolutionJob {
  ConvolutionShape shape;
  ConvolutionCut cut;
  std::optional<Copy> copies[3]; /* of inputs that do not lie row after row */
  const float *x, *weight, *bias;
  Blocks held;          /* the matrix of each group */
  float* zeros;         /* as many as the longest tap has numbers */
  const float** places; /* room for each worker's */
  float* y;
  int workers;
  bool positive; /* results below 0 are 0 */

  explicit ConvolutionJob(const ConvolutionShape& given) : shape(given), cut(given) {}

  int zero_numbers() const { return shape.channels * (shape.groups == 1 ? shape.kernel[2] : 1); }
  int64_t unit_places() const { return int64_t{shape.taps()} * WINDOWS; }
  int64_t worker_places() const { return cut.units * unit_places(); }

  void pack(const Table& table, int index) const {
    const int matrix = index / shape.blocks(), block = index % shape.blocks();
    const int columns = shape.columns(), rows = shape.rows();
    const float* from = weight + int64_t{matrix} * rows * columns;
    float* to = held.packed + matrix * shape.matrix_numbers() + int64_t{block} * columns * LANES;
    for (int lane = 0; lane < LANES; lane += 4) {
      const float* four[4];
      for (int m = 0; m < 4; m++) {
        const int row = block * LANES + lane + m;
        four[m] = from + int64_t{std::min(row, rows - 1)} * columns; /* filling is not written */
      }
      table.beside(four, columns, LANES, to + lane);
    }
  }

  /* Find the windows of `count` results from `next` on, and move `next` behind them. The last
   * window is repeated up to WINDOWS. Taps of the last axis that lie beside each other become one
   * tap, with the channels of all. */
  Windows find(ResultPlace& next, int count, int group, const float** places) const {
    const int offset = group * shape.group_channels(), width = shape.kernel[2];
    bool is_one =
        shape.groups == 1 && shape.dilation[2] == 1 && shape.spread[2] == 1 && !shape.flip;
    ResultPlace results[WINDOWS]; /* the first ones of lines of results */
    int begins[WINDOWS + 1], lines = 0;
    for (int at = 0; at < count; lines++) {
      const int length = std::min(count - at, shape.out[2] - next.at[2]);
      is_one = is_one && shape.place(2, next.at[2], 0) >= 0 &&
               shape.place(2, next.at[2] + length - 1, width - 1) >= 0;
      results[lines] = next;
      begins[lines] = at;
      at += length;
      next.advance(shape, length);
    }
    begins[lines] = count;
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

  /* Results of a tile and of a part of a group's blocks; of all channels where each is alone. */
  void compute(const Table& table, int tile, int group, int part, const float** room) const {
    Windows units[MOST_UNITS];
    const int64_t begin = int64_t{tile} * cut.units * WINDOWS;
    const int outputs = shape.rows(), columns = shape.columns();
    ResultPlace next(shape, begin);
    int count = 0;
    for (int64_t at = begin; count < cut.units && at < shape.results(); at += WINDOWS, count++) {
      const auto rows = static_cast<int>(std::min<int64_t>(WINDOWS, shape.results() - at));
      units[count] = find(next, rows, group, room + count * unit_places());
    }
    const int64_t stride = shape.outputs;
    float* to = y + begin * stride + int64_t{group} * outputs;
    if (shape.is_depthwise()) {
      for (int unit = 0; unit < count; unit++, to += WINDOWS * stride)
        table.by_channels(units[unit], held.packed, outputs, bias, positive, to, stride);
      return;
    }
    const float* own = bias != nullptr ? bias + int64_t{group} * outputs : nullptr;
    const float* packed = held.packed + group * shape.matrix_numbers();
    const Matrix matrix{Format::Float32, 32,      0,       outputs,         columns,
                        packed,          nullptr, nullptr, Scalar::Float32, own};
    const int last = std::min(shape.blocks(), (part + 1) * cut.step);
    const int pass = std::max(4, CACHED / (columns * LANES) / 4 * 4);
    for (int block = part * cut.step; block < last; block += pass)
      for (int unit = 0; unit < count; unit++)
        table.multiply_windows(matrix, units[unit], block, std::min(block + pass, last), positive,
                               to + unit * WINDOWS * stride, stride);
  }

  void operator()() const {
    const Series series;
    const Table& used = table();
    run(copies);
    std::fill_n(zeros, zero_numbers(), 0.0F);
    if (held.packs)
      parallel(shape.matrices() * shape.blocks(), [&](int index) { pack(used, index); });
    held.filled();
    const int matrices = shape.matrices();
    share(cut.tiles * matrices * cut.parts, workers, [&](int index, int worker) {
      const int tile = index % cut.tiles, rest = index / cut.tiles;
      compute(used, tile, rest % matrices, rest / matrices, places + worker * worker_places());
    });
  }
};

}  // namespace cowmlx
