/* Copies of arrays on the caller's thread, so that no context waits for them. */
#ifndef COW_ARRAY_CALLS_H
#define COW_ARRAY_CALLS_H

#include "arrays/arrays.h"

/* Copies of this many bytes and more are made without the interpreter, if the caller holds it. */
enum { COW_LONG_COPY = 1 << 16 };

/* Memory of cow_memory_new() with the elements of a tensor; NULL if there is too little. */
void* cow_arrays_gathered(const char* operation, const cow_tensor* from);

/* Copy the elements of an array of the same type to a tensor. */
void cow_arrays_scatter(const cow_array_state* from, const cow_tensor* to);

/* Open an array with the elements of a tensor. */
cow_mlx_status cow_arrays_copy_in(const char* operation, const cow_tensor* from,
                                  cow_mlx_array* out);

/* The elements of an array that the caller holds; computes them first if need be. */
cow_mlx_status cow_arrays_look(const char* operation, cow_mlx_array handle, cow_array* array,
                               cow_array_state* out);

cow_mlx_status cow_arrays_no_memory(const char* operation, size_t bytes);

#endif
