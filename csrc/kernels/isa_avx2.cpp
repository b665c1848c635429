/* The kernels compiled for one instruction set. */
#define ISA avx2
#include "simd/avx2.h"

#include "families/table.h"

namespace cowmlx {

extern const Table avx2_table = ISA::filled("avx2");

}  // namespace cowmlx
