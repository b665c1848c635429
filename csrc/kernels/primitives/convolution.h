/* How a convolution is computed, channels last: as products of windows, which are read where they
 * lie. No window is copied. A thread copies the input's lines that it reads if they are short, with
 * zeros at their ends. */
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "arena.h"
#include "arrays.h"
#include "convolution_shape.h"
#include "kept.h"
#include "pool.h"
#include "table.h"

namespace cowmlx {

constexpr int MOST_UNITS = 20;        /* of WINDOWS results that a thread computes at once */
constexpr int MOST_PLACES = 1 << 13;  /* of a thread's windows, so that a core's cache holds them */
constexpr int CACHED = 1 << 16;       /* numbers of weights that it holds beside them */
constexpr int MOST_COLUMNS = 1 << 16; /* numbers of a window */
constexpr int CHUNK = 1 << 15;        /* products of a chunk of channels: some µs */
constexpr int SHORT_LINE = 4 * WINDOWS; /* results */
constexpr int64_t MOST_LINES = 1 << 16; /* numbers of lines that a thread copies at once */

template <size_t N>
void run(const std::optional<Copy> (&copies)[N]) {
  for (const std::optional<Copy>& copy : copies)
    if (copy) copy->run();
}

/* How results are divided among threads: each tile of results, each part of a group's blocks. */
struct ConvolutionCut {
  int units, tiles, parts; /* units of WINDOWS results are a tile */
  int step;                /* blocks of a part */
  int64_t lines;           /* that a tile copies, at most; 0: none */

  explicit ConvolutionCut(const ConvolutionShape& shape) {
    const int64_t all = (shape.results() + WINDOWS - 1) / WINDOWS;
    const int64_t products = int64_t{shape.taps()} * shape.channels * WINDOWS;
    int64_t most = std::clamp(MOST_PLACES / (shape.taps() * WINDOWS), 1, MOST_UNITS);
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
    if (!copies_lines(shape)) return;
    const int64_t tile = int64_t{units} * WINDOWS, rows = (tile - 1) / shape.out[2] + 2;
    const int64_t images = (tile - 1) / (int64_t{shape.out[1]} * shape.out[2]) + 2;
    lines = rows * shape.stride[1] + images * (shape.reach(1) + 1);
    if (lines > MOST_LINES / line_of(shape).index(0, 1, 0)) lines = 0;
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

  /* Many windows of short lines read zeros. */
  static bool copies_lines(const ConvolutionShape& shape) {
    const bool is_flat =
        shape.kernel[0] == 1 && shape.in[0] == 1 && shape.out[0] == 1 && shape.before[0] == 0;
    const bool is_inside =
        shape.is_inside(1, 0, shape.out[1] - 1) && shape.is_inside(2, 0, shape.out[2] - 1);
    return is_flat && !is_inside && !shape.is_spread() && shape.out[2] <= SHORT_LINE;
  }

  /* Lines as they are copied. */
  static Extent line_of(const ConvolutionShape& shape) {
    const int64_t width = int64_t{shape.out[2] - 1} * shape.stride[2] + shape.reach(2) + 1;
    return {1, width, shape.is_depthwise() ? shape.channels : shape.group_channels()};
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
  float* lines;         /* likewise */
  float* y;
  int workers;
  bool positive; /* results below 0 are 0 */

  explicit ConvolutionJob(const ConvolutionShape& given) : shape(given), cut(given) {}

  /* Take scratch. */
  void take(Arena& arena) {
    zeros = arena.take<float>(zero_numbers());
    places = arena.take<const float*>(workers * worker_places());
    lines = arena.take<float>(workers * worker_lines());
  }

  int zero_numbers() const { return shape.channels * (shape.groups == 1 ? shape.kernel[2] : 1); }
  int64_t unit_places() const { return int64_t{shape.taps()} * WINDOWS; }
  int64_t worker_places() const { return cut.units * unit_places(); }
  int64_t worker_lines() const { return ConvolutionCut::line_of(shape).index(0, cut.lines, 0); }

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
    bool is_one = shape.groups == 1 && shape.dilation[2] == 1 && !shape.flip;
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
      return windows_at(firsts, count, all, places);
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
   * WINDOWS. Taps of the last axis that lie beside each other become one tap, with the channels of
   * all. */
  Windows windows_at(const float* const* firsts, int count, const Extent& input,
                     const float** places) const {
    const float* all[WINDOWS];
    for (int i = 0; i < WINDOWS; i++) all[i] = firsts[std::min(i, count - 1)];
    const bool is_one =
        input.channels == shape.group_channels() && shape.dilation[2] == 1 && !shape.flip;
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

  /* Results of a tile and of a part of a group's blocks; of all channels where each is alone. */
  void compute(const Table& table, int tile, int group, int part, const float** room,
               float* copied) const {
    Windows units[MOST_UNITS];
    const int64_t begin = int64_t{tile} * cut.units * WINDOWS;
    const int64_t end = std::min(begin + int64_t{cut.units} * WINDOWS, shape.results());
    const int outputs = shape.rows(), columns = shape.columns();
    const float* firsts[MOST_UNITS * WINDOWS];
    const Extent lines = ConvolutionCut::line_of(shape);
    if (cut.lines > 0) lay(begin, end, group * shape.group_channels(), lines, copied, firsts);
    ResultPlace next(shape, begin);
    int count = 0;
    for (int64_t at = begin; at < end; at += WINDOWS, count++) {
      const auto rows = static_cast<int>(std::min<int64_t>(WINDOWS, end - at));
      const float** places = room + count * unit_places();
      units[count] = cut.lines > 0 ? windows_at(firsts + count * WINDOWS, rows, lines, places)
                                   : find(next, rows, group, places);
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
      compute(used, tile, rest % matrices, rest / matrices, places + worker * worker_places(),
              lines + worker * worker_lines());
    });
  }
};

}  // namespace cowmlx
