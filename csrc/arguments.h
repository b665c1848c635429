/* What the typed arguments of call_arguments.h are made of. */
#ifndef COW_ARGUMENTS_H
#define COW_ARGUMENTS_H

#include "cow_mlx.h"

/* Text or bytes that the caller owns. */
typedef struct cow_text {
  const char* data;
  size_t length;
} cow_text;

/* Tokens that the caller owns. */
typedef struct cow_tokens {
  const int32_t* data;
  size_t count;
} cow_tokens;

/* Texts that the caller owns. */
typedef struct cow_texts {
  const cow_mlx_text* data;
  size_t count;
} cow_texts;

/* An array that somebody holds; arrays.h has the rest. */
typedef struct cow_array cow_array;

/* The values of a run, and the array of each: the caller holds it until the engine takes it over
 * and leaves NULL. */
typedef struct cow_values {
  const cow_mlx_value* given;
  cow_array** arrays;
  size_t count;
} cow_values;

/* A result of a run. */
typedef struct cow_result {
  bool is_host; /* it has to be of this dtype and shape */
  int32_t dtype;
  int32_t rank;
  const int64_t* shape;
  cow_array* array; /* NULL; receives the result, which the caller holds then */
} cow_result;

typedef struct cow_results {
  cow_result* data;
  size_t count;
} cow_results;

/* Texts that end at their first NUL. */
typedef struct cow_strings {
  const char* const* data;
  size_t count;
} cow_strings;

/* Arrays that the caller names. */
typedef struct cow_handles {
  const cow_mlx_array* data;
  size_t count;
} cow_handles;

/* Where a result of variable size goes; conventions 6 of cow_mlx.h. */
typedef struct cow_text_out {
  char* buffer;
  size_t capacity;
  size_t* length;
} cow_text_out;

typedef struct cow_tokens_out {
  int32_t* buffer;
  size_t capacity;
  size_t* count;
} cow_tokens_out;

typedef struct cow_floats_out {
  float* buffer;
  size_t capacity;
  size_t* count;
} cow_floats_out;

typedef struct cow_arrays_out {
  cow_mlx_array* buffer;
  size_t capacity;
  size_t* count; /* NULL: there are as many as the buffer has room for */
} cow_arrays_out;

#endif
