/* The products of int8 activations compiled for NEON with products of 8-bit matrices; all else is
 * NEON's. */
#define ISA i8mm
#define COWMLX_BASE neon_table
#include "simd/neon.h"

#include "families/int8_table.h"

namespace cowmlx {

extern const Table i8mm_table = ISA::filled("i8mm");

}  // namespace cowmlx
