#include "pages.h"

#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace cowmlx {

#ifdef MADV_HUGEPAGE
void in_large_pages(void* begin, size_t bytes) {
  constexpr uintptr_t LARGE = uintptr_t{1} << 21; /* of x86-64, and of ARM with pages of 4 KiB */
  const auto first = (reinterpret_cast<uintptr_t>(begin) + LARGE - 1) / LARGE * LARGE;
  const auto end = (reinterpret_cast<uintptr_t>(begin) + bytes) / LARGE * LARGE;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}
#else
void in_large_pages(void*, size_t) {} /* macOS has them for itself alone */
#endif

}  // namespace cowmlx
