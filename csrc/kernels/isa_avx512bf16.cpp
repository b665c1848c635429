/* The products of weights of bfloat16 compiled for AVX-512 with BF16; all else is AVX-512's with
 * VNNI. */
#define ISA avx512bf16
#define COWMLX_BASE avx512vnni_table
#include "simd/avx512.h"

#include "families/bfloat16_table.h"

namespace cowmlx {

extern const Table avx512bf16_table = ISA::filled("avx512bf16");

}  // namespace cowmlx
