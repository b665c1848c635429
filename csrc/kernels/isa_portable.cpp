/* The kernels compiled for one instruction set. */
#define ISA portable
#include "simd/portable.h"

#include "families/table.h"

namespace cowmlx {

extern const Table portable_table = ISA::filled("portable");

}  // namespace cowmlx
