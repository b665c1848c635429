/* Which instruction set's kernels run: the best that processor and system know, or the one that
 * COWMLX_KERNELS names. */
#pragma once

#include "table.h"

namespace cowmlx {

extern const Table portable_table;
#if defined(__x86_64__)
extern const Table avx2_table, avx512_table, avx512vnni_table;
#elif defined(__aarch64__)
extern const Table neon_table;
#endif

/* What may run here, best first, ended by null. */
const Table* const* usable_tables();

/* Use the kernels of that name from the next operation on; null or "": the best. Operations that
 * have begun end with the kernels that they began with. "" is returned, or why the name cannot be
 * had, a sentence; nothing changes then. The text stays valid until the next call. */
const char* select_table(const char* name);

}  // namespace cowmlx
