/* The products of int8 activations compiled for AVX-512 with VNNI; all else is AVX-512's. */
#define ISA avx512vnni
#include "simd/avx512.h"

#define COWMLX_EXACT_ELSEWHERE
#include "families/tiles.h"
#include "table.h"

namespace cowmlx::ISA {

static void exact_product(const Task& task, int from, int to, int row) {
  avx512_table.product(task.matrix, task.prepared, from, to, row, task.row_end, task.y,
                       task.stride);
}

}  // namespace cowmlx::ISA

#include "families/products.h"

namespace cowmlx::ISA {

/* A function that calls an entry of AVX-512's table. A table of such functions is a constant; to
 * copy that table, code of this file would run where a processor may not know its instructions. */
template <auto ENTRY>
struct Avx512;

template <class R, class... A, R (*Table::*ENTRY)(A...)>
struct Avx512<ENTRY> {
  static R function(A... arguments) { return (avx512_table.*ENTRY)(arguments...); }
};

template <auto... ENTRIES>
static constexpr Table filled() {
  Table table{};
  ((table.*ENTRIES = Avx512<ENTRIES>::function), ...);
  table.name = "avx512vnni";
  table.prepare_size = prepare_size;
  table.prepare = prepare;
  table.product = product;
  table.row_numbers = row_numbers;
  return table;
}

}  // namespace cowmlx::ISA

namespace cowmlx {

extern const Table avx512vnni_table =
    ISA::filled<&Table::rms_norm, &Table::layer_norm, &Table::add, &Table::gate, &Table::softmax,
                &Table::rotate, &Table::store, &Table::load, &Table::quantize,
                &Table::attention_size, &Table::attention, &Table::highest, &Table::exponentials,
                &Table::threefry, &Table::contenders, &Table::recurrence, &Table::adam>();

}  // namespace cowmlx
