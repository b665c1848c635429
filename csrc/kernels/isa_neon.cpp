/* The kernels compiled for one instruction set. */
#define ISA neon
#include "simd/neon.h"

#include "families/table.h"

namespace cowmlx {

extern const Table neon_table = ISA::filled("neon");

}  // namespace cowmlx
