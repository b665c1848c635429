/* The table of a set that has instructions for some products alone: all else is done by the set
 * whose table COWMLX_BASE names. */
#pragma once

#include "../table.h"

namespace cowmlx::ISA {

/* A function that calls an entry of the other table. A table of such functions is a constant; to
 * copy that table, code of this file would run where a processor may not know its instructions. */
template <auto ENTRY>
struct Base;

template <class R, class... A, R (*Table::*ENTRY)(A...)>
struct Base<ENTRY> {
  static R function(A... arguments) { return (COWMLX_BASE.*ENTRY)(arguments...); }
};

template <auto... ENTRIES>
static constexpr Table with_base(const char* name) {
  Table table{};
  ((table.*ENTRIES = Base<ENTRIES>::function), ...);
  table.name = name;
  return table;
}

/* All but what products need. */
static constexpr Table without_products(const char* name) {
  return with_base<&Table::rms_norm, &Table::layer_norm, &Table::norm_gradient, &Table::add,
                   &Table::gate, &Table::gelu_gradient, &Table::softmax, &Table::rotate,
                   &Table::store, &Table::load, &Table::quantize, &Table::attention_size,
                   &Table::attention, &Table::trained_attention_size, &Table::trained_attention,
                   &Table::attention_gradient, &Table::beside, &Table::multiply_windows,
                   &Table::by_channels, &Table::outer_products, &Table::multiply_line,
                   &Table::outer_lines, &Table::line_sums, &Table::highest, &Table::exponentials,
                   &Table::threefry, &Table::contenders, &Table::recurrence, &Table::adam>(name);
}

}  // namespace cowmlx::ISA
