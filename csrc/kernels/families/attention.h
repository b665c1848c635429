/* Attention over a cache; meanings in table.h. The including file has chosen an instruction set. */
#pragma once

#include "attention_few.h"
#include "attention_many.h"

namespace cowmlx::ISA {

static size_t attention_size(int key_dim, int value_dim) {
  size_t dims = static_cast<size_t>(key_dim) + static_cast<size_t>(value_dim);
  size_t room = TILE * static_cast<size_t>(key_dim > value_dim ? key_dim : value_dim);
  size_t many = dims * QUERIES + TILE * QUERIES + room;
  size_t few = FEW * TILE + room;
  return (many > few ? many : few) + LANES;
}

COWMLX_KERNEL void attention(const Attention& a) {
  if (a.queries < 1 || a.heads < 1) return;
  float* scratch = aligned(a.scratch);
  if (a.queries <= FEW_QUERIES && a.heads <= FEW_HEADS) return attend_few(a, scratch);
  int64_t rows = static_cast<int64_t>(a.queries) * a.heads;
  for (int64_t row = 0; row < rows; row += QUERIES)
    attend_tile(a, row, row + QUERIES < rows ? row + QUERIES : rows, scratch);
}

}  // namespace cowmlx::ISA
