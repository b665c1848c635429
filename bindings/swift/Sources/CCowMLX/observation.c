/* libswiftObservation of Swift 6.0 for Linux lacks a function that it calls when a mutex fails.
 * Without a definition, no program that observes links. A toolchain that has the function uses its
 * definition. */
#ifdef __linux__

#include <stdlib.h>

__attribute__((weak)) void cow_mlx_threading_fatal(const char* format,
                                                   ...) __asm__("_ZN5swift9threading5fatalEPKcz");

void cow_mlx_threading_fatal(const char* format, ...) {
  (void)format;
  abort();
}

#endif
