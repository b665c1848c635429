/* How a convolution is computed, channels last: as products of windows. */
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "arena.h"
#include "arrays.h"
#include "convolution_windows.h"
#include "kept.h"
#include "pool.h"

namespace cowmlx {

constexpr int CACHED = 1 << 16; /* numbers of weights that a core's cache holds beside windows */
constexpr int NEAR = 1 << 13;   /* likewise for the nearest cache and lines */
constexpr int MOST_COLUMNS = 1 << 16;   /* numbers of a window */
constexpr int CHUNK = 1 << 15;          /* products of a chunk of channels: some µs */
constexpr int SHORT_LINE = 4 * WINDOWS; /* results */

template <size_t N>
void run(const std::optional<Copy> (&copies)[N]) {
  for (const std::optional<Copy>& copy : copies)
    if (copy) copy->run();
}

/* How results are divided among threads: each tile of results, each part of a group's blocks. */
struct ConvolutionCut {
  int units, tiles, parts; /* units of WINDOWS results, or of a part of a line, are a tile */
  int step;                /* blocks of a part */
  int64_t lines;           /* that a tile copies, at most; 0: none */

  explicit ConvolutionCut(const ConvolutionShape& shape) {
    const bool in_lines = shape.is_in_lines();
    const int64_t all = in_lines ? shape.all_parts() : (shape.results() + WINDOWS - 1) / WINDOWS;
    const int64_t products = int64_t{shape.taps()} * shape.channels * WINDOWS;
    int64_t most = std::clamp(MOST_PLACES / (shape.taps() * WINDOWS), 1, MOST_UNITS);
    if (in_lines)
      most = std::clamp(MOST_PLACES / shape.other_taps(), 1,
                        std::max(MOST_UNITS * WINDOWS / shape.out[2], 1));
    if (shape.is_depthwise()) most = std::clamp<int64_t>(CHUNK / products, 1, most);
    /* Weights that no cache holds are read once for as many results as possible. */
    const bool heavy = shape.matrix_numbers() > 4 * CACHED;
    units = even(all, std::clamp<int64_t>(heavy ? all : all / (4 * threads()), 1, most),
                 shape.matrices());
    tiles = static_cast<int>((all + units - 1) / units);
    const bool few = !shape.is_depthwise() && int64_t{tiles} * shape.groups < 2 * threads();
    step = few ? std::max(2, shape.blocks() / (4 * threads())) : shape.blocks();
    parts = (shape.blocks() + step - 1) / step;
    lines = 0;
    if (!in_lines && shape.out[2] <= SHORT_LINE)
      lines = ConvolutionWindows::count_lines(shape, units);
  }

  /* Units of a tile, from half of `most` on, that let all threads end at the same time. A tile
   * costs about as much as a quarter of a unit. */
  static int even(int64_t all, int64_t most, int64_t matrices) {
    const auto cost = [&](int64_t units) {
      const int64_t tiles = (all + units - 1) / units * matrices;
      return (tiles + threads() - 1) / threads() * (4 * units + 1);
    };
    int64_t best = most;
    for (int64_t units = most; 2 * units > most; units--)
      if (cost(units) < cost(best)) best = units;
    return static_cast<int>(best);
  }
};

/* One evaluation. */
struct ConvolutionJob : ConvolutionWindows {
  ConvolutionCut cut;
  std::optional<Copy> copies[3]; /* of inputs that do not lie row after row */
  const float *weight, *bias;
  Blocks held;          /* the matrix of each group */
  const float** places; /* room for each worker's */
  float* lines;         /* likewise */
  float* y;
  int workers;
  bool positive; /* results below 0 are 0 */

  explicit ConvolutionJob(const ConvolutionShape& given)
      : ConvolutionWindows{given, nullptr, nullptr}, cut(given) {}

  /* Take scratch. */
  void take(Arena& arena) {
    zeros = arena.take<float>(zero_numbers());
    places = arena.take<const float*>(workers * worker_places());
    lines = arena.take<float>(workers * worker_lines());
  }

  int64_t worker_places() const {
    return cut.units * (shape.is_in_lines() ? shape.other_taps() : unit_places());
  }
  int64_t worker_lines() const { return copied_line(shape).index(0, cut.lines, 0); }

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

  /* Results of a tile and of a part of all blocks, line by line. */
  void compute_lines(const Table& table, int tile, int part, const float** room) const {
    const int64_t begin = int64_t{tile} * cut.units;
    const int64_t end = std::min(begin + cut.units, shape.all_parts());
    const float** next = room;
    for (int64_t index = begin; index < end; index++) {
      const ResultPlace place(shape, LinePart(shape, index).result(shape));
      for (int depth = 0; depth < shape.kernel[0]; depth++)
        for (int height = 0; height < shape.kernel[1]; height++)
          *next++ = line(shape, x, place, depth, height);
    }
    const Matrix matrix = matrix_of(0);
    const int last = std::min(shape.blocks(), (part + 1) * cut.step);
    const int pass = std::max(1, NEAR / (shape.columns() * LANES));
    for (int block = part * cut.step; block < last; block += pass)
      for (int64_t index = begin; index < end; index++) {
        const LinePart own(shape, index);
        table.multiply_line(matrix, lines_of(), room + (index - begin) * shape.other_taps(),
                            own.first, own.end - own.first, block, std::min(block + pass, last),
                            positive, y + own.result(shape) * shape.outputs, shape.outputs);
      }
  }

  /* The matrix of a group. */
  Matrix matrix_of(int group) const {
    const float* own = bias != nullptr ? bias + int64_t{group} * shape.rows() : nullptr;
    const float* packed = held.packed + group * shape.matrix_numbers();
    return {Format::Float32, 32,      0,       shape.rows(),    shape.columns(),
            packed,          nullptr, nullptr, Scalar::Float32, own};
  }

  /* Results of a tile and of a part of a group's blocks; of all channels where each is alone. */
  void compute(const Table& table, int tile, int group, int part, const float** room,
               float* copied) const {
    if (shape.is_in_lines()) return compute_lines(table, tile, part, room);
    Windows units[MOST_UNITS];
    const int64_t begin = int64_t{tile} * cut.units * WINDOWS;
    const int64_t end = std::min(begin + int64_t{cut.units} * WINDOWS, shape.results());
    const int outputs = shape.rows(), columns = shape.columns();
    const int count =
        find_all(begin, end, group, true, room, cut.lines > 0 ? copied : nullptr, units);
    const int64_t stride = shape.outputs;
    float* to = y + begin * stride + int64_t{group} * outputs;
    if (shape.is_depthwise()) {
      for (int unit = 0; unit < count; unit++, to += WINDOWS * stride)
        table.by_channels(units[unit], held.packed, outputs, bias, positive, to, stride);
      return;
    }
    const Matrix matrix = matrix_of(group);
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
      compute(used, tile, rest % matrices, rest / matrices, places + worker * worker_places(),
              lines + worker * worker_lines());
    });
  }
};

}  // namespace cowmlx
