// The products of one instruction set's table against sums in float64, over all formats. TABLE is
// its name. What reads or writes behind an array meets a page that nobody may touch.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "checks.h"
#include "table.h"

using namespace cowmlx;

namespace {

int failures = 0;

struct Kind {
  Format format;
  int bits, group;
  Scalar scale;
};

double from_half(uint16_t h, bool brain) {
  uint32_t u = static_cast<uint32_t>(h) << 16;
  if (!brain)
    u = (h & 0x7fff) == 0
            ? 0
            : (h & 0x8000u) << 16 | (((h >> 10) & 31) + 112u) << 23 | (h & 0x3ffu) << 13;
  float x;
  memcpy(&x, &u, 4);
  return x;
}

double from_e4m3(int b) {
  const int exponent = (b >> 3) & 15, fraction = b & 7;
  const double size = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
  return b & 128 ? -size : size;
}

double from_e2m1(int b) {
  const double sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return b & 8 ? -sizes[b & 7] : sizes[b & 7];
}

// A matrix in blocks, and the same numbers in float64.
struct Random {
  Kind kind;
  int rows, columns, groups;
  int64_t blocks;
  Array<uint8_t> weight, scales, biases;
  Array<float> bias;
  Array<double> numbers;
  Matrix matrix;

  static bool dense(const Kind& kind) { return kind.group == 0; }

  Random(const Kind& k, int n, int width, bool adds)
      : kind(k),
        rows(n),
        columns(width),
        groups(dense(k) ? 0 : width / k.group),
        blocks((n + LANES - 1) / LANES),
        weight(blocks * LANES * width * k.bits / 8),
        scales(blocks * LANES * groups * scale_bytes()),
        biases(k.format == Format::Affine ? scales.size : 0),
        bias(n),
        numbers(int64_t{n} * width),
        matrix{k.format,    k.bits,      k.group,     n,       width,
               weight.data, scales.data, biases.data, k.scale, adds ? bias.data : nullptr} {
    if (k.format != Format::Affine) matrix.biases = nullptr;
    if (dense(k)) matrix.scales = nullptr;
    for (int row = 0; row < n; row++) {
      bias[row] = static_cast<float>(random_unit());
      for (int g = 0; g < groups; g++) put_scales(row, g);
      for (int column = 0; column < width; column++) put(row, column);
    }
  }

  int scale_bytes() const {
    return kind.scale == Scalar::UInt8 ? 1 : kind.scale == Scalar::Float32 ? 4 : 2;
  }

  // Where a number stands in an array of `per_row` numbers a row.
  static int64_t place(int row, int64_t i, int64_t per_row) {
    return (row / LANES * per_row + i) * LANES + row % LANES;
  }

  void put_number(Array<uint8_t>& to, Scalar type, int64_t at, double x) {
    const float value = static_cast<float>(x);
    const uint16_t half = to_half(value, type == Scalar::BFloat16);
    if (type == Scalar::Float32)
      memcpy(to.data + 4 * at, &value, 4);
    else
      memcpy(to.data + 2 * at, &half, 2);
  }

  double number(Array<uint8_t>& from, Scalar type, int64_t at) {
    float value;
    uint16_t half;
    if (type == Scalar::Float32) return memcpy(&value, from.data + 4 * at, 4), value;
    memcpy(&half, from.data + 2 * at, 2);
    return from_half(half, type == Scalar::BFloat16);
  }

  void put_scales(int row, int g) {
    const int64_t at = place(row, g, groups);
    if (kind.scale == Scalar::UInt8) {
      const bool fine = kind.format == Format::Nvfp4;
      scales[at] = static_cast<uint8_t>(fine ? random_word() % 120 : 120 + random_word() % 10);
      return;
    }
    put_number(scales, kind.scale, at, 0.01 + 0.1 * fabs(random_unit()));
    put_number(biases, kind.scale, at, 0.5 * random_unit());
  }

  void put(int row, int column) {
    double& number = numbers[int64_t{row} * columns + column];
    if (dense(kind)) {
      const Scalar type = kind.format == Format::Float32   ? Scalar::Float32
                          : kind.format == Format::Float16 ? Scalar::Float16
                                                           : Scalar::BFloat16;
      const double wanted = 0.25 + 0.5 * fabs(random_unit());
      put_number(weight, type, place(row, column, columns), random_word() & 64 ? wanted : -wanted);
      number = this->number(weight, type, place(row, column, columns));
      return;
    }
    uint32_t code = (random_word() >> 8) & ((1u << kind.bits) - 1);
    if (kind.format == Format::Mxfp8 && (code & 127) == 127) code = 0;  // a NaN
    for (int i = 0; i < kind.bits; i++) {
      const int64_t bit = int64_t{column} * kind.bits + i;
      const int64_t word = place(row, bit / 32, int64_t{columns} * kind.bits / 32);
      if (code >> i & 1) weight[4 * word + bit % 32 / 8] |= static_cast<uint8_t>(1 << bit % 8);
    }
    const int64_t at = place(row, column / kind.group, groups);
    if (kind.format == Format::Affine)
      number = this->number(scales, kind.scale, at) * code + this->number(biases, kind.scale, at);
    else if (kind.format == Format::Nvfp4)
      number = from_e4m3(scales[at]) * from_e2m1(static_cast<int>(code));
    else
      number = ldexp(
          kind.bits == 4 ? from_e2m1(static_cast<int>(code)) : from_e4m3(static_cast<int>(code)),
          scales[at] - 127);
  }
};

// The bfloat16 that is nearest, of two the even one.
float to_bfloat16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// How far a product may be from the exact one: float32's rounding, and for int8 what rounding takes
// off each number of x.
double allowed(Random& m, const float* x, int row, bool int8) {
  double terms = 0, steps = 0;
  const int group = m.groups ? rounded_together(m.matrix) : m.columns;
  for (int first = 0; first < m.columns; first += group) {
    double most = 0, largest = 0;
    for (int k = first; k < first + group; k++) {
      const double w = fabs(m.numbers[int64_t{row} * m.columns + k]);
      most = fmax(most, fabs(x[k]));
      largest = fmax(largest, w);
      terms += fmax(w, 1) * fabs(x[k]);
    }
    const double step = most / 127;
    for (int k = first; k < first + group; k++)
      steps += step > 0 ? fabs(m.numbers[int64_t{row} * m.columns + k]) *
                              (fabs(x[k] - step * nearbyint(x[k] / step)) + step * 1e-4)
                        : 0;
    // Affine numbers are made of a code and a bias, each larger than the number.
    terms += largest * most * 255 * (m.kind.format == Format::Affine);
  }
  return terms * 1e-6 + (int8 ? steps * 1.01 : 0);
}

void check(const Table& table, const Kind& kind, int n, int columns, int rows, bool rounded) {
  Random m(kind, n, columns, rows % 2 == 0);
  const int64_t stride = columns + 3, out_stride = n + 5;
  Array<float> x(rows * stride), y(rows * out_stride), line(columns);
  for (int64_t i = 0; i < x.size; i++) x[i] = static_cast<float>(random_unit());
  // Large numbers in some rows make those coarse that share their scale, and no others.
  for (int64_t row = 1; row < rows; row += 2)
    for (int k = 0; k < columns; k++)
      if (k / 32 % 2 == 0) x[row * stride + k] = copysignf(100, x[row * stride + k]);
  for (int64_t i = 0; i < y.size; i++) y[i] = -77;
  Array<char> scratch(static_cast<int64_t>(table.prepare_size(m.matrix, rows, rounded)));
  Prepared prepared;
  table.prepare(m.matrix, x.data, stride, rows, rounded, scratch.data, &prepared);
  const bool in_pairs = prepared.pairs != nullptr;
  if (in_pairs && (!rounded || kind.format != Format::BFloat16))
    failures++, fprintf(stderr, "format %d in pairs\n", static_cast<int>(kind.format));
  const int half = static_cast<int>(m.blocks / 2), cut = rows / 2 / 4 * 4;
  for (int part = 0; part < 2; part++) {
    const int from = part ? half : 0, to = part ? static_cast<int>(m.blocks) : half;
    table.product(m.matrix, prepared, from, to, 0, cut, y.data, out_stride);
    // Later rows are written from their own place on.
    table.product(m.matrix, prepared, from, to, cut, rows, y.data, out_stride);
  }
  for (int row = 0; row < rows; row++) {
    for (int i = n; i < out_stride; i++)
      if (y[row * out_stride + i] != -77) failures++, fprintf(stderr, "wrote beside %d\n", row);
    for (int i = 0; i < n; i++) {
      double wanted = m.matrix.bias ? m.bias[i] : 0;
      for (int k = 0; k < columns; k++) {
        const float value = x[row * stride + k];
        wanted += m.numbers[int64_t{i} * columns + k] * (in_pairs ? to_bfloat16(value) : value);
      }
      const double got = y[row * out_stride + i];
      if (fabs(got - wanted) <= allowed(m, x.data + row * stride, i, prepared.int8)) continue;
      failures++;
      if (failures < 20)
        fprintf(stderr,
                "format %d bits %d group %d N %d K %d M %d rounded %d: y[%d][%d] %g, not %g\n",
                static_cast<int>(kind.format), kind.bits, kind.group, n, columns, rows, rounded,
                row, i, got, wanted);
    }
  }
  // Each row alone gives the same bits.
  Array<float> alone(n);
  Array<char> room(static_cast<int64_t>(table.prepare_size(m.matrix, 1, rounded)));
  for (int row = 0; row < rows; row += 3) {
    table.prepare(m.matrix, x.data + row * stride, stride, 1, rounded, room.data, &prepared);
    for (const bool one_stream : {false, true}) {
      one_row.stream_bits = one_stream ? 32 : 0;
      one_row.one_stream = one_row.second_level = one_stream;
      table.product(m.matrix, prepared, 0, static_cast<int>(m.blocks), 0, 1, alone.data, n);
      if (memcmp(alone.data, y.data + row * out_stride, n * sizeof(float)) != 0)
        failures++, fprintf(stderr, "row %d of %d differs alone\n", row, rows);
    }
  }
  for (int row = 0; row < n; row += 7) {
    table.row_numbers(m.matrix, row, line.data);
    for (int k = 0; k < columns; k++) {
      const double wanted = m.numbers[int64_t{row} * columns + k];
      if (fabs(line[k] - wanted) > 1e-5 * (1 + fabs(wanted)))
        failures++, fprintf(stderr, "row %d decodes to %g, not %g\n", row, line[k], wanted);
    }
  }
}

const Kind KINDS[] = {
    {Format::Float32, 32, 0, Scalar::Float32},  {Format::Float16, 16, 0, Scalar::Float32},
    {Format::BFloat16, 16, 0, Scalar::Float32}, {Format::Affine, 2, 32, Scalar::Float32},
    {Format::Affine, 3, 64, Scalar::BFloat16},  {Format::Affine, 4, 32, Scalar::Float16},
    {Format::Affine, 4, 64, Scalar::Float32},   {Format::Affine, 4, 128, Scalar::BFloat16},
    {Format::Affine, 5, 32, Scalar::Float32},   {Format::Affine, 6, 128, Scalar::Float16},
    {Format::Affine, 8, 32, Scalar::BFloat16},  {Format::Affine, 8, 64, Scalar::Float32},
    {Format::Mxfp4, 4, 32, Scalar::UInt8},      {Format::Nvfp4, 4, 16, Scalar::UInt8},
    {Format::Mxfp8, 8, 32, Scalar::UInt8},
};

}  // namespace

int main() {
  const Table& table = TABLE;
  for (const Kind& kind : KINDS) {
    const int group = kind.group == 0 ? 1 : kind.group < 32 ? 32 : kind.group;
    const int few = kind.group == 0 ? 37 : group, many = kind.group == 0 ? 100 : 3 * group;
    for (int rounded = 0; rounded < 2; rounded++) {
      for (int rows = 0; rows <= 20; rows++) check(table, kind, 21, few, rows, rounded);
      check(table, kind, 1, many, 3, rounded);
      check(table, kind, 100, many, 27, rounded);
      check(table, kind, 16, few, 100, rounded);
      check(table, kind, 37, many, 300, rounded);
    }
  }
  return failures > 0;
}
