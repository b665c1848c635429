/* The products of int8 activations compiled for AVX-512 with VNNI; all else is AVX-512's. */
#define ISA avx512vnni
#define COWMLX_BASE avx512_table
#include "simd/avx512.h"

#include "families/int8_table.h"

namespace cowmlx {

extern const Table avx512vnni_table = ISA::filled("avx512vnni");

}  // namespace cowmlx
