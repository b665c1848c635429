/* The kernels compiled for one instruction set. */
#include <cstddef>
#include <cstdint>
#include <cstring>

#define ISA avx2
#include "simd/avx2.h"
#include "simd/math.h"
#include "families/functions.h"
#include "families/exact_products.h"
#include "families/products.h"
#include "families/rows.h"
#include "families/attention.h"
#include "families/packing.h"
#include "families/draw.h"
#include "families/recurrence.h"
#include "families/updates.h"
#include "families/table.h"

namespace cowmlx {

extern const Table avx2_table = ISA::filled("avx2");

}  // namespace cowmlx
