/* How the gradients of a convolution are computed that has no groups and whose input is not
 * spread: as products, too. */
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "convolution.h"

namespace cowmlx {

/* Numbers of a block's lanes, filled up with zeros: uninitialized memory may hold denormal numbers,
 * which make products a hundred times slower. */
inline void put_lanes(const float* from, int count, float* to) {
  for (int lane = 0; lane < LANES; lane++) to[lane] = lane < count ? from[lane] : 0;
}

/* For the weight: the outer products of all windows with the gradients of their results. Results
 * are taken a tile at a time, and columns of windows in groups, so that sums stay in a core's
 * cache; the sums of parts of all results are added in the end. */
struct WeightGradientJob : ConvolutionWindows {
  static constexpr int COLUMNS = 252;                       /* of a group */
  static constexpr int MOST_CHANNELS = 128;                 /* of lines: more make many sums */
  static constexpr int TASKS = 32;                          /* that threads share, about */
  static constexpr int64_t MOST_NUMBERS = int64_t{1} << 22; /* of all sums */

  std::optional<Copy> copies[2];
  const float* by;
  float* sums;          /* (parts, columns, stride) */
  const float** places; /* room for each worker's windows */
  float* lines;         /* likewise for the lines of a tile */
  float* rows;          /* likewise for a tile's gradients, where they fill no blocks */
  float* out;           /* (outputs, columns) */
  int workers;

  /* Take scratch. */
  void take(Arena& arena) {
    zeros = arena.take<float>(zero_numbers());
    sums = arena.take<float>(parts() * part_numbers());
    places = arena.take<const float*>(workers * worker_places());
    lines = arena.take<float>(workers * worker_lines());
    rows = arena.take<float>(workers * worker_rows());
  }

  /* None of these depends on threads: they decide the order in which numbers are added. */
  int units() const { return std::clamp(MOST_PLACES / (shape.taps() * WINDOWS), 1, MOST_UNITS); }
  int64_t tile() const { return int64_t{units()} * WINDOWS; }
  int64_t tiles() const { return (shape.results() + tile() - 1) / tile(); }
  bool in_lines() const {
    return shape.is_in_lines() && shape.outputs % LANES == 0 && shape.channels <= MOST_CHANNELS;
  }
  int groups() const {
    if (in_lines()) return shape.columns() <= 2 * COLUMNS ? 1 : shape.other_taps();
    return (shape.columns() + COLUMNS - 1) / COLUMNS;
  }
  int64_t stride() const { return int64_t{shape.blocks()} * LANES; }
  int64_t part_numbers() const { return shape.columns() * stride(); }
  int parts() const {
    const int64_t wanted = (TASKS + groups() - 1) / groups();
    return static_cast<int>(
        std::max<int64_t>(1, std::min({wanted, tiles(), MOST_NUMBERS / part_numbers()})));
  }

  int64_t worker_places() const { return units() * unit_places(); }
  int64_t worker_lines() const {
    return copied_line(shape).index(0, count_lines(shape, units()), 0);
  }
  int64_t worker_rows() const { return shape.outputs % LANES == 0 ? 0 : tile() * stride(); }

  /* The gradients of a tile's results in whole blocks. */
  const float* rows_of(int64_t first, int64_t count, float* own) const {
    const float* from = by + first * shape.outputs;
    if (shape.outputs % LANES == 0) return from;
    float* to = own;
    for (int64_t row = 0; row < count; row++, from += shape.outputs)
      for (int output = 0; output < shape.outputs; output += LANES, to += LANES)
        put_lanes(from + output, std::min(LANES, shape.outputs - output), to);
    return own;
  }

  /* A group of columns, of a part of all results. */
  void sum(const Table& table, int group, int part, int worker) const {
    Windows found[MOST_UNITS];
    const int64_t line_numbers = worker_lines(), many = parts();
    /* Taps are joined where this is so of all windows. */
    const bool joins = line_numbers > 0 || shape.is_inside();
    const int first = group * COLUMNS, last = std::min(first + COLUMNS, shape.columns());
    float* to = sums + part * part_numbers() + first * stride();
    std::fill_n(to, (last - first) * stride(), 0.0F);
    for (int64_t at = tiles() * part / many; at < tiles() * (part + 1) / many; at++) {
      const int64_t begin = at * tile(), end = std::min(begin + tile(), shape.results());
      float* copied = line_numbers > 0 ? lines + worker * line_numbers : nullptr;
      const int units =
          find_all(begin, end, 0, joins, places + worker * worker_places(), copied, found);
      table.outer_products(found, units, shape.columns() / found[0].taps, first, last,
                           rows_of(begin, end - begin, rows + worker * worker_rows()),
                           shape.blocks(), to);
    }
  }

  /* A group of taps of the other axes, of a part of all lines. */
  void sum_lines(const Table& table, int group, int part) const {
    const int taps = shape.other_taps() / groups(), first = group * taps, many = parts();
    const int64_t all = shape.all_parts(), end = all * (part + 1) / many;
    const int64_t numbers = shape.columns() / shape.other_taps() * stride();
    const int64_t most = std::clamp(NEAR / (shape.channels + shape.outputs), 128, 240);
    float* to = sums + part * part_numbers() + first * numbers;
    std::fill_n(to, taps * numbers, 0.0F);
    for (int64_t index = all * part / many; index < end;) {
      LinePart found[MOST_UNITS];
      int count = 0;
      for (int64_t results = 0; index < end && count < MOST_UNITS && results < most; index++) {
        found[count] = LinePart(shape, index);
        results += found[count].end - found[count].first;
        count++;
      }
      for (int tap = 0; tap < taps; tap++)
        sum_tap(table, first + tap, found, count, to + tap * numbers);
    }
  }

  /* The columns of a tap of the other axes, of parts of lines. */
  void sum_tap(const Table& table, int tap, const LinePart* parts, int count, float* to) const {
    WindowLine lines[MOST_UNITS];
    const int depth = tap / shape.kernel[1], height = tap % shape.kernel[1];
    for (int i = 0; i < count; i++) {
      const int64_t first = parts[i].result(shape);
      lines[i] = {line(shape, x, ResultPlace(shape, first), depth, height),
                  by + first * shape.outputs, parts[i].first, parts[i].end};
    }
    table.outer_lines(lines_of(), lines, count, shape.blocks(), to);
  }

  /* Add up the parts of a block of outputs. */
  void add_parts(int block) const {
    const int columns = shape.columns(), count = std::min(LANES, shape.outputs - block * LANES);
    const int many = parts();
    for (int column = 0; column < columns; column++) {
      const float* from = sums + column * stride() + block * LANES;
      float total[LANES] = {};
      for (int part = 0; part < many; part++, from += part_numbers())
        for (int lane = 0; lane < LANES; lane++) total[lane] += from[lane];
      float* to = out + int64_t{block} * LANES * columns + column;
      for (int lane = 0; lane < count; lane++) to[int64_t{lane} * columns] = total[lane];
    }
  }

  void operator()() const {
    const Series series;
    const Table& used = table();
    run(copies);
    std::fill_n(zeros, zero_numbers(), 0.0F);
    share(groups() * parts(), workers, [&](int index, int worker) {
      const int group = index % groups(), part = index / groups();
      if (in_lines())
        sum_lines(used, group, part);
      else
        sum(used, group, part, worker);
    });
    share(shape.blocks(), workers, [&](int block, int) { add_parts(block); });
  }
};

/* For the input: each number gets what all windows that it is in give. by (R, O) times the weight
 * (O, J) are windows of gradients, which are added where they belong, image by image. */
struct InputGradientJob {
  static constexpr int RESULTS = 60; /* of a tile */

  ConvolutionShape shape;
  std::optional<Copy> copies[2];
  const float *by, *weight;
  float* packed; /* the weight's transpose, as products read it */
  float* room;   /* for each worker: a tile's gradients and windows */
  float* out;    /* as the input */
  int workers;

  /* Take scratch. */
  void take(Arena& arena) {
    packed = arena.take<float>(packed_numbers());
    room = arena.take<float>(workers * worker_numbers());
  }

  int64_t image_numbers() const {
    return int64_t{shape.in[0]} * shape.in[1] * shape.in[2] * shape.channels;
  }
  int blocks() const { return (shape.columns() + LANES - 1) / LANES; }
  int64_t packed_numbers() const { return int64_t{blocks()} * shape.outputs * LANES; }
  int64_t worker_numbers() const { return int64_t{RESULTS} * (shape.outputs + shape.columns()); }

  void pack(int block) const {
    const int columns = shape.columns(), first = block * LANES;
    const int count = std::min(LANES, columns - first);
    float* to = packed + int64_t{block} * shape.outputs * LANES;
    for (int output = 0; output < shape.outputs; output++, to += LANES)
      put_lanes(weight + int64_t{output} * columns + first, count, to);
  }

  /* Add a window to an image where it belongs: taps that lie beside each other at once. */
  void add(const ResultPlace& result, const float* window, float* image) const {
    const int width = shape.kernel[2], channels = shape.channels, in = shape.in[2];
    const int begin = result.at[2] * shape.stride[2] - shape.before[2];
    const bool is_one = shape.dilation[2] == 1 && !shape.flip && begin >= 0 && begin + width <= in;
    for (int depth = 0; depth < shape.kernel[0]; depth++)
      for (int height = 0; height < shape.kernel[1]; height++, window += width * channels) {
        const int d = shape.place(0, result.at[0], depth);
        const int h = shape.place(1, result.at[1], height);
        if (d < 0 || h < 0) continue;
        float* line = image + (int64_t{d} * shape.in[1] + h) * in * channels;
        if (is_one) {
          add_numbers(window, width * channels, line + int64_t{begin} * channels);
          continue;
        }
        for (int tap = 0; tap < width; tap++) {
          const int w = shape.place(2, result.at[2], tap);
          if (w >= 0) add_numbers(window + tap * channels, channels, line + int64_t{w} * channels);
        }
      }
  }

  static void add_numbers(const float* from, int count, float* __restrict to) {
    for (int i = 0; i < count; i++) to[i] += from[i];
  }

  void image(const Table& table, int index, float* own) const {
    const int outputs = shape.outputs, columns = shape.columns();
    const int64_t results = shape.results() / shape.images;
    float *laid = own, *windows = own + int64_t{RESULTS} * outputs;
    float* to = out + index * image_numbers();
    std::fill_n(to, image_numbers(), 0.0F);
    const Matrix matrix{Format::Float32, 32,      0,       columns,         outputs,
                        packed,          nullptr, nullptr, Scalar::Float32, nullptr};
    ResultPlace next(shape, index * results);
    for (int64_t first = 0; first < results; first += RESULTS) {
      const auto count = static_cast<int>(std::min<int64_t>(RESULTS, results - first));
      for (int row = 0; row < count; row += 4) {
        const float* rows[4];
        for (int m = 0; m < 4; m++)
          rows[m] = by + (index * results + first + std::min(row + m, count - 1)) * outputs;
        table.beside(rows, outputs, 4, laid + int64_t{row} * outputs);
      }
      const Prepared prepared{std::max(count, 2), outputs, false, laid, nullptr, nullptr, nullptr};
      table.product(matrix, prepared, 0, matrix.blocks(), 0, count, windows, columns);
      for (int row = 0; row < count; row++, next.advance(shape))
        add(next, windows + int64_t{row} * columns, to);
    }
  }

  void operator()() const {
    const Series series;
    const Table& used = table();
    run(copies);
    share(blocks(), workers, [&](int block, int) { pack(block); });
    share(shape.images, workers,
          [&](int index, int worker) { image(used, index, room + worker * worker_numbers()); });
  }
};

}  // namespace cowmlx
