/* The products of int8 activations compiled for AVX-512 with VNNI; all else is AVX-512's. */
#include <cstddef>
#include <cstdint>
#include <cstring>

#define ISA avx512vnni
#include "simd/avx512.h"
#include "families/blocks.h"
#include "select.h"

namespace cowmlx::ISA {

/* A function that calls an entry of AVX-512's table. A table of such functions is a constant; to
 * copy that table, code of this file would run where a processor may not know its instructions. */
template <auto ENTRY>
struct Avx512;

template <class R, class... A, R (*Table::*ENTRY)(A...)>
struct Avx512<ENTRY> {
  static R function(A... arguments) { return (avx512_table.*ENTRY)(arguments...); }
};

static void exact_product(const Task& task, int from, int to, int row) {
  avx512_table.product(task.matrix, task.prepared, from, to, row, task.row_end, task.y,
                       task.stride);
}

constexpr auto rms_norm = Avx512<&Table::rms_norm>::function;
constexpr auto layer_norm = Avx512<&Table::layer_norm>::function;
constexpr auto add = Avx512<&Table::add>::function;
constexpr auto gate = Avx512<&Table::gate>::function;
constexpr auto softmax = Avx512<&Table::softmax>::function;
constexpr auto rotate = Avx512<&Table::rotate>::function;
constexpr auto store_numbers = Avx512<&Table::store>::function;
constexpr auto load_numbers = Avx512<&Table::load>::function;
constexpr auto pack_numbers = Avx512<&Table::pack>::function;
constexpr auto attention_size = Avx512<&Table::attention_size>::function;
constexpr auto attention = Avx512<&Table::attention>::function;
constexpr auto recurrence = Avx512<&Table::recurrence>::function;
constexpr auto adam = Avx512<&Table::adam>::function;
constexpr auto maximum_of = Avx512<&Table::highest>::function;
constexpr auto exponentials = Avx512<&Table::exponentials>::function;
constexpr auto threefry = Avx512<&Table::threefry>::function;
constexpr auto contenders = Avx512<&Table::contenders>::function;

}  // namespace cowmlx::ISA

#include "families/products.h"
#include "families/table.h"

namespace cowmlx {

extern const Table avx512vnni_table = ISA::filled("avx512vnni");

}  // namespace cowmlx
