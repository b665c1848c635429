/* The kernels compiled for one instruction set. */
#define ISA avx512
#include "simd/avx512.h"

#include "families/table.h"

namespace cowmlx {

extern const Table avx512_table = ISA::filled("avx512");

}  // namespace cowmlx
