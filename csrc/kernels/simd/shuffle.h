/* Numbers of two vectors, by their places; GCC before 12 has no __builtin_shufflevector. For
 * vectors of integers of their numbers' size, `Places` is their type. */
#pragma once

#ifdef __clang__
#define COWMLX_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define COWMLX_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Places{__VA_ARGS__})
#endif
