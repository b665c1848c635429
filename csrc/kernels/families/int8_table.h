/* The table of a set that has instructions for int8 products alone. Included by the file of that
 * set. */
#pragma once

#include "base_table.h"
#include "products.h"

namespace cowmlx::ISA {

static constexpr Table filled(const char* name) {
  Table table = without_products(name);
  table.prepare_size = prepare_size;
  table.prepare = prepare;
  table.product = product;
  table.row_numbers = row_numbers;
  return table;
}

}  // namespace cowmlx::ISA
