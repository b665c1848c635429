/* How a convolution is computed, channels last: as products, of windows that are laid as products
 * read rows, some results at a time, so that neither a padded input nor all windows are ever in
 * memory. */
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
constexpr int UNIT = 12;              /* results that a tile of products takes */
constexpr int MOST = 20 * UNIT;       /* that are laid together */
constexpr int TILE_NUMBERS = 1 << 17; /* of windows that stay in a core's cache */
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

  /* Where weight `tap` of an axis reads for a result; -1: a zero. */
  int place(size_t axis, int result, int tap) const {
    const int turned = flip ? kernel[axis] - 1 - tap : tap;
    const int at = result * stride[axis] + turned * dilation[axis] - before[axis];
    if (at < 0) return -1;
    if (spread[axis] == 1) return at < in[axis] ? at : -1;
    return at % spread[axis] == 0 && at / spread[axis] < in[axis] ? at / spread[axis] : -1;
  }
};

/* The image and the position of a result. */
struct ResultPlace {
  int image;
  Three at;

  ResultPlace(const ConvolutionShape& shape, int64_t index) {
    for (size_t axis = AXES; axis-- > 0; index /= shape.out[axis])
      at[axis] = static_cast<int>(index % shape.out[axis]);
    image = static_cast<int>(index);
  }

  void advance(const ConvolutionShape& shape) {
    for (size_t axis = AXES; axis-- > 0;) {
      if (++at[axis] < shape.out[axis]) return;
      at[axis] = 0;
    }
    image++;
  }
};

template <size_t N>
void run(const std::optional<Copy> (&copies)[N]) {
  for (const std::optional<Copy>& copy : copies)
    if (copy) copy->run();
}

/* One evaluation. */
struct ConvolutionJob {
  ConvolutionShape shape;
  std::optional<Copy> copies[3]; /* of inputs that do not lie row after row */
  const float *x, *weight, *bias;
  Blocks held;        /* the matrix of each group */
  float* zeros;       /* as many as channels */
  const float** taps; /* depthwise: room for each worker's */
  float* laid;        /* room for each worker's windows, or for all */
  float* y;
  int workers, tile, tiles;
  bool together; /* all windows are laid first, and blocks are shared then */
  bool positive; /* results below 0 are 0 */

  /* Line `tap` of a window's first two axes, of an image; null: zeros. */
  const float* line(const ResultPlace& result, int depth, int height) const {
    const int d = shape.place(0, result.at[0], depth), h = shape.place(1, result.at[1], height);
    if (d < 0 || h < 0) return nullptr;
    const int64_t index = (int64_t{result.image} * shape.in[0] + d) * shape.in[1] + h;
    return x + index * shape.in[2] * shape.channels;
  }

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

  /* Lay the windows of four results. */
  void lay(const Table& table, const ResultPlace (&results)[4], int group, float* to) const {
    const int own = shape.group_channels(), offset = group * own, width = shape.kernel[2];
    bool whole = shape.groups == 1 && shape.dilation[2] == 1 && shape.spread[2] == 1 && !shape.flip;
    for (const ResultPlace& result : results)
      whole = whole && shape.place(2, result.at[2], 0) >= 0 &&
              shape.place(2, result.at[2], width - 1) >= 0;
    const bool one_row = results[3].at[2] == results[0].at[2] + 3;
    for (int depth = 0; depth < shape.kernel[0]; depth++)
      for (int height = 0; height < shape.kernel[1]; height++) {
        const float *lines[4], *rows[4];
        bool all = whole;
        for (int m = 0; m < 4; m++) {
          lines[m] = m > 0 && one_row ? lines[0] : line(results[m], depth, height);
          all = all && lines[m] != nullptr;
        }
        for (int tap = 0; tap < (all ? 1 : width); tap++) {
          for (int m = 0; m < 4; m++) {
            const int at = shape.place(2, results[m].at[2], tap);
            rows[m] = lines[m] != nullptr && at >= 0
                          ? lines[m] + int64_t{at} * shape.channels + offset
                          : zeros;
          }
          const int count = all ? width * own : own;
          table.beside(rows, count, 4, to);
          to += 4 * count;
        }
      }
  }

  /* Lay those of results [first, end); rows that fill up the last four are the last one again. */
  void lay_tile(const Table& table, int64_t first, int64_t end, int group, float* to) const {
    ResultPlace next(shape, first);
    for (int64_t at = first; at < end; at += 4, to += 4 * int64_t{shape.columns()}) {
      ResultPlace results[4] = {next, next, next, next};
      for (int m = 1; m < 4; m++) {
        results[m] = results[m - 1];
        if (at + m < end) results[m].advance(shape);
      }
      lay(table, results, group, to);
      next = results[3];
      next.advance(shape);
    }
  }

  /* Results [first, end) of blocks [from, to) of a group. */
  void multiply(const Table& table, int64_t first, int64_t end, int group, int from, int to,
                const float* windows) const {
    const int outputs = shape.rows(), columns = shape.columns();
    const float* own = bias != nullptr ? bias + int64_t{group} * outputs : nullptr;
    const Matrix matrix{Format::Float32,
                        32,
                        0,
                        outputs,
                        columns,
                        held.packed + group * shape.matrix_numbers(),
                        nullptr,
                        nullptr,
                        Scalar::Float32,
                        own};
    const auto rows = static_cast<int>(end - first);
    const Prepared prepared{std::max(rows, 2), columns, false, windows, nullptr, nullptr, nullptr};
    float* place = y + first * shape.outputs + int64_t{group} * outputs;
    table.product(matrix, prepared, from, to, 0, rows, place, shape.outputs);
    if (!positive) return;
    const int column = from * LANES, count = std::min(outputs, to * LANES) - column;
    for (place += column; first < end; first++, place += shape.outputs)
      table.gate(Activation::Relu, place, nullptr, count, place);
  }

  void by_tiles(const Table& table) const {
    share(tiles * shape.groups, workers, [&](int index, int worker) {
      const int group = index / tiles;
      const int64_t first = int64_t{index % tiles} * tile;
      const int64_t end = std::min(first + tile, shape.results());
      float* windows = laid + int64_t{worker} * tile * shape.columns();
      lay_tile(table, first, end, group, windows);
      multiply(table, first, end, group, 0, shape.blocks(), windows);
    });
  }

  void by_blocks(const Table& table) const {
    const int units = tile / UNIT, columns = shape.columns(), blocks = shape.blocks();
    const int64_t results = shape.results(), size = int64_t{tile} * tiles * columns;
    parallel(tiles * units * shape.groups, [&](int index) {
      const int group = index / (tiles * units);
      const int64_t first = int64_t{index % (tiles * units)} * UNIT;
      if (first < results)
        lay_tile(table, first, std::min(first + UNIT, results), group,
                 laid + group * size + first * columns);
    });
    const int step = std::max(1, blocks / (4 * workers)), parts = (blocks + step - 1) / step;
    parallel(tiles * parts * shape.groups, [&](int index) {
      const int at = index % tiles, part = index / tiles % parts, group = index / tiles / parts;
      const int64_t first = int64_t{at} * tile;
      multiply(table, first, std::min(first + tile, results), group, part * step,
               std::min(blocks, (part + 1) * step), laid + group * size + first * columns);
    });
  }

  void channel_result(const Table& table, const ResultPlace& result, const float** own,
                      float* to) const {
    const float** next = own;
    for (int depth = 0; depth < shape.kernel[0]; depth++)
      for (int height = 0; height < shape.kernel[1]; height++) {
        const float* from = line(result, depth, height);
        for (int tap = 0; tap < shape.kernel[2]; tap++) {
          const int at = shape.place(2, result.at[2], tap);
          *next++ = from != nullptr && at >= 0 ? from + int64_t{at} * shape.channels : zeros;
        }
      }
    table.by_channels(own, held.packed, shape.taps(), shape.channels, bias, to);
    if (positive) table.gate(Activation::Relu, to, nullptr, shape.channels, to);
  }

  void by_channels(const Table& table) const {
    share(tiles, workers, [&](int index, int worker) {
      const int64_t first = int64_t{index} * tile, end = std::min(first + tile, shape.results());
      ResultPlace result(shape, first);
      for (int64_t at = first; at < end; at++, result.advance(shape))
        channel_result(table, result, taps + int64_t{worker} * shape.taps(),
                       y + at * shape.channels);
    });
  }

  void operator()() const {
    const Series series;
    const Table& used = table();
    run(copies);
    std::fill_n(zeros, shape.channels, 0.0F);
    if (held.packs)
      parallel(shape.matrices() * shape.blocks(), [&](int index) { pack(used, index); });
    held.filled();
    if (taps != nullptr)
      by_channels(used);
    else if (together)
      by_blocks(used);
    else
      by_tiles(used);
  }
};

/* How results are divided among threads. */
struct ConvolutionCut {
  int tile, tiles;
  bool together;

  explicit ConvolutionCut(const ConvolutionShape& shape) {
    const int64_t results = shape.results(), share = results / (4 * threads());
    const int64_t numbers = int64_t{shape.columns()} * (shape.is_depthwise() ? shape.channels : 1);
    const int64_t fitting = shape.is_depthwise() ? CHUNK / numbers : TILE_NUMBERS / numbers;
    const int64_t most = std::min<int64_t>(fitting, MOST);
    tile = static_cast<int>(std::max<int64_t>(std::min(most, share) / UNIT, 1) * UNIT);
    tiles = static_cast<int>((results + tile - 1) / tile);
    together = int64_t{tiles} * shape.groups < 2 * threads();
  }
};

}  // namespace cowmlx
