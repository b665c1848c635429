/* The products of int8 activations compiled for AVX2 with AVX-VNNI; all else is AVX2's. */
#define ISA avxvnni
#define COWMLX_BASE avx2_table
#include "simd/avx2.h"

#include "families/int8_table.h"

namespace cowmlx {

extern const Table avxvnni_table = ISA::filled("avxvnni");

}  // namespace cowmlx
