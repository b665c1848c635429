/* What the calls of arrays share. */
#ifndef COW_ARRAY_CALLS_H
#define COW_ARRAY_CALLS_H

#include "arrays/arrays.h"

/* Copies of so many bytes are made on the caller's thread, and without the interpreter if it holds
 * that. */
enum { COW_LONG_COPY = 1 << 16 };

/* Open an array of what a tensor holds. */
cow_mlx_status cow_arrays_copy_in(const char* operation, const cow_tensor* from,
                                  cow_mlx_array* out);

/* The elements of an array that the caller holds; computes them first if need be. */
cow_mlx_status cow_arrays_look(const char* operation, cow_mlx_array handle, cow_array* array,
                               cow_array_state* out);

/* Let go of the interpreter for a long copy; cow_bootstrap_restore_interpreter() takes the result.
 */
void* cow_arrays_before_copy(size_t bytes);

/* Memory of cow_memory_new(), for which the engine gives up what it keeps for reuse if need be. */
void* cow_arrays_memory(const char* operation, size_t bytes);

cow_mlx_status cow_arrays_no_memory(const char* operation, size_t bytes);

#endif
