/* Memory that is read from end to end for every token. */
#pragma once

#include <cstddef>

namespace cowmlx {

/* Ask the system to lay memory that nobody has written to yet in large pages, where it has them:
 * walking the tables of 4 KiB pages takes a part of the time that reading weights takes. A hint,
 * which changes no content and cannot fail. */
void in_large_pages(void* begin, size_t bytes);

}  // namespace cowmlx
