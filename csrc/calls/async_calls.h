/* The calls that return at once: each checks and copies its arguments, and sends a request that no
 * thread waits for. */
#ifndef COW_ASYNC_CALLS_H
#define COW_ASYNC_CALLS_H

#include "base/error.h"

/* A request with copies of all arguments. */
typedef struct cow_detached cow_detached;

/* Copies of a string, of a list of strings, or of `count` values of `size` bytes, which live as
 * long as the request; NULL for NULL, and where memory is short. A list above the bridge's limit is
 * not read: the bridge refuses its count. */
const char* cow_detached_string(cow_detached* to, const char* from);
const char* const* cow_detached_strings(cow_detached* to, const char* const* from, size_t count);
void* cow_detached_values(cow_detached* to, const void* from, size_t count, size_t size);

/* Generated: copy the members of params that are pointers. */
void cow_detached_generation_params(cow_detached* to, cow_mlx_generation_params* params);
void cow_detached_model_params(cow_detached* to, cow_mlx_model_params* params);

#endif
