/* Products of int8 activations, a kind for each format. */
#pragma once

#include "blocks.h"

namespace cowmlx::ISA {

/* As the kinds of exact_products.h. */
template <class Code, int BITS, bool IS_RARE>
struct Int8 {
  static constexpr bool RARE = IS_RARE, INTEGER = true;

  template <int M, int B>
  static COWMLX_MEMBER void tile(const Task& task, int row, int block) {
    const int64_t columns = task.matrix.columns, groups = task.groups();
    int8_tile<Code, BITS, M, B>(task.matrix, task.prepared.quantised + row * columns,
                                WIDTH<M> * columns / 4, task.prepared.scales + row * groups,
                                task.prepared.sums + row * groups, block, task.from(row));
  }
};

static inline void int8_product(const Task& task, int from, int to, int row) {
  if (task.matrix.format != Format::Affine) /* float formats that has_int8() accepts */
    return product_of<Int8<Float4Code, 4, true>>(task, from, to, row);
  switch (task.matrix.bits) {
    case 2:
      return product_of<Int8<AffineCode<2>, 2, true>>(task, from, to, row);
    case 3:
      return product_of<Int8<AffineCode<3>, 3, true>>(task, from, to, row);
    case 4:
      return product_of<Int8<AffineCode<4>, 4, false>>(task, from, to, row);
    case 5:
      return product_of<Int8<AffineCode<5>, 5, true>>(task, from, to, row);
    case 6:
      return product_of<Int8<AffineCode<6>, 6, true>>(task, from, to, row);
    default:
      return product_of<Int8<AffineCode<8>, 8, false>>(task, from, to, row);
  }
}

}  // namespace cowmlx::ISA
