/* Products of exact activations, a kind for each format. */
#pragma once

#include "blocks.h"

namespace cowmlx::ISA {

/* Formats as one type each, with a function `tile<M, B>(task, row, block)`. Rare ones have fewer
 * tiles, for the sake of the library's size. */
template <class T, Format FORMAT>
struct Dense {
  static constexpr bool RARE = false, INTEGER = false;

  template <int M, int B>
  static COWMLX_MEMBER void tile(const Task& task, int row, int block) {
    const int64_t columns = task.matrix.columns;
    dense_tile<T, FORMAT, M, B>(task.matrix, task.prepared.x + row * columns, WIDTH<M> * columns,
                                block, task.from(row));
  }
};

template <class Code, bool IS_RARE>
struct Exact {
  static constexpr bool RARE = IS_RARE, INTEGER = false;

  template <int M, int B>
  static COWMLX_MEMBER void tile(const Task& task, int row, int block) {
    const int64_t columns = task.matrix.columns;
    exact_tile<Code, M, B>(task.matrix, task.prepared.x + row * columns, WIDTH<M> * columns,
                           task.prepared.sums + row * task.groups(), block, task.from(row));
  }
};

static inline void exact_product(const Task& task, int from, int to, int row) {
  switch (task.matrix.format) {
    case Format::Float32:
      return product_of<Dense<float, Format::Float32>>(task, from, to, row);
    case Format::Float16:
      return product_of<Dense<uint16_t, Format::Float16>>(task, from, to, row);
    case Format::BFloat16:
      return product_of<Dense<uint16_t, Format::BFloat16>>(task, from, to, row);
#define RUN(NAME, MODE, BITS, GROUP, CODE, ...) \
  case Format::NAME:                            \
    return product_of<Exact<CODE, true>>(task, from, to, row);
      COWMLX_FLOAT_FORMATS(RUN)
#undef RUN
    case Format::Affine:
      break;
  }
  switch (task.matrix.bits) {
    case 2:
      return product_of<Exact<AffineCode<2>, true>>(task, from, to, row);
    case 3:
      return product_of<Exact<AffineCode<3>, true>>(task, from, to, row);
    case 4:
      return product_of<Exact<AffineCode<4>, false>>(task, from, to, row);
    case 5:
      return product_of<Exact<AffineCode<5>, true>>(task, from, to, row);
    case 6:
      return product_of<Exact<AffineCode<6>, true>>(task, from, to, row);
    default:
      return product_of<Exact<AffineCode<8>, false>>(task, from, to, row);
  }
}

}  // namespace cowmlx::ISA
