/* How the gradients of a convolution without groups are computed: as products, too. */
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

/* For the weight: windows^T (J, R), of J = taps x channels numbers for each of R results, times the
 * results' gradients (R, O), turned. Results are taken some at a time, and taps in groups, so that
 * windows stay in a core's cache; sums of parts of all results are added in the end. */
struct WeightGradientJob {
  static constexpr int RESULTS = 240;                       /* of a tile */
  static constexpr int ROWS = 256;                          /* of windows^T, about */
  static constexpr int UNITS = 32;                          /* that threads share, about */
  static constexpr int64_t MOST_NUMBERS = int64_t{1} << 22; /* of all sums */

  ConvolutionShape shape; /* whose input is not spread */
  std::optional<Copy> copies[2];
  const float *x, *by;
  float* zeros; /* as many as channels */
  float* sums;  /* (parts, taps, channels, outputs) */
  float* room;  /* for each worker: a tile's windows^T, its gradients, their product */
  float* out;   /* (outputs, taps, channels) */
  int workers;

  int group_taps() const { return std::clamp(ROWS / shape.channels, 1, shape.taps()); }
  int groups() const { return (shape.taps() + group_taps() - 1) / group_taps(); }
  int tile() const { return static_cast<int>(std::min<int64_t>(RESULTS, shape.results())); }
  int64_t tiles() const { return (shape.results() + tile() - 1) / tile(); }
  int64_t part_numbers() const { return int64_t{shape.columns()} * shape.outputs; }
  /* Does not depend on threads, since sums are added part by part. */
  int parts() const {
    const int64_t wanted = (UNITS + groups() - 1) / groups();
    return static_cast<int>(
        std::max<int64_t>(1, std::min({wanted, tiles(), MOST_NUMBERS / part_numbers()})));
  }
  int64_t windows_numbers() const {
    return (int64_t{group_taps()} * shape.channels + 3) / 4 * 4 * tile();
  }
  int64_t by_numbers() const { return int64_t{shape.blocks()} * LANES * tile(); }
  int64_t product_numbers() const { return int64_t{group_taps()} * shape.channels * shape.outputs; }
  int64_t worker_numbers() const { return windows_numbers() + by_numbers() + product_numbers(); }

  /* Where a tap reads for each result of a tile. */
  void places(int64_t first, int count, int tap, const float** to) const {
    const int width = shape.kernel[2], height = shape.kernel[1];
    while (count > 0) { /* those of a line of results */
      const ResultPlace result(shape, first);
      const int run = std::min(count, shape.out[2] - result.at[2]);
      put_places(shape, line(shape, x, result, tap / (width * height), tap / width % height),
                 result.at[2], tap % width, run, zeros, to);
      to += run;
      first += run;
      count -= run;
    }
  }

  /* Rows [row, row + channels) of windows^T: four rows lie beside each other. */
  void lay(const float* const* from, int count, int row, float* windows) const {
    const int channels = shape.channels;
    if (channels % 4 == 0) {
      float* to = windows + int64_t{row} * count;
      for (int channel = 0; channel < channels; channel += 4)
        for (int r = 0; r < count; r++, to += 4)
          std::memcpy(to, from[r] + channel, 4 * sizeof(float));
      return;
    }
    for (int channel = 0; channel < channels; channel++, row++) {
      float* to = windows + int64_t{row / 4 * 4} * count + row % 4;
      for (int r = 0; r < count; r++) to[4 * r] = from[r][channel];
    }
  }

  /* The gradients of a tile's results as a matrix of as many columns. */
  void pack(int64_t first, int count, float* to) const {
    for (int output = 0; output < shape.outputs; output += LANES) {
      const int left = std::min(LANES, shape.outputs - output);
      for (int r = 0; r < count; r++, to += LANES)
        put_lanes(by + (first + r) * shape.outputs + output, left, to);
    }
  }

  /* A group of taps, of a part of all results. */
  void unit(const Table& table, int group, int part, float* own) const {
    float *windows = own, *packed = windows + windows_numbers(), *made = packed + by_numbers();
    const int first_tap = group * group_taps(), outputs = shape.outputs;
    const int taps = std::min(group_taps(), shape.taps() - first_tap);
    const int rows = taps * shape.channels;
    const int64_t size = int64_t{rows} * outputs, many = parts();
    float* to = sums + part * part_numbers() + int64_t{first_tap} * shape.channels * outputs;
    std::fill_n(to, size, 0.0F);
    std::fill_n(windows, windows_numbers(), 0.0F); /* what fills the last four rows */
    for (int64_t at = tiles() * part / many; at < tiles() * (part + 1) / many; at++) {
      const int64_t first = at * tile();
      const auto count = static_cast<int>(std::min<int64_t>(tile(), shape.results() - first));
      const float* from[RESULTS];
      for (int tap = 0; tap < taps; tap++) {
        places(first, count, first_tap + tap, from);
        lay(from, count, tap * shape.channels, windows);
      }
      pack(first, count, packed);
      const Matrix matrix{Format::Float32, 32,      0,       outputs,         count,
                          packed,          nullptr, nullptr, Scalar::Float32, nullptr};
      const Prepared prepared{std::max(rows, 2), count, false, windows, nullptr, nullptr, nullptr};
      table.product(matrix, prepared, 0, matrix.blocks(), 0, rows, made, outputs);
      for (int64_t i = 0; i < size; i++) to[i] += made[i];
    }
  }

  /* Add the parts of an output up. */
  void turn(int output) const {
    float* to = out + int64_t{output} * shape.columns();
    for (int row = 0; row < shape.columns(); row++) {
      const float* from = sums + int64_t{row} * shape.outputs + output;
      float sum = 0;
      for (int part = 0; part < parts(); part++, from += part_numbers()) sum += *from;
      to[row] = sum;
    }
  }

  void operator()() const {
    const Series series;
    const Table& used = table();
    run(copies);
    std::fill_n(zeros, shape.channels, 0.0F);
    share(groups() * parts(), workers, [&](int index, int worker) {
      unit(used, index % groups(), index / groups(), room + worker * worker_numbers());
    });
    share(shape.outputs, workers, [&](int output, int) { turn(output); });
  }
};

/* For the input: each number gets what all windows that it is in give. by (R, O) times the weight
 * (O, J) are windows of gradients, which are added where they belong, image by image. */
struct InputGradientJob {
  static constexpr int RESULTS = 60; /* of a tile */

  ConvolutionShape shape; /* whose input is not spread */
  std::optional<Copy> copies[2];
  const float *by, *weight;
  float* packed; /* the weight's transpose, as products read it */
  float* room;   /* for each worker: a tile's gradients and windows */
  float* out;    /* as the input */
  int workers;

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
