/* The types of the arguments in call_arguments.h. */
#ifndef COW_ARGUMENTS_H
#define COW_ARGUMENTS_H

#include "cow_mlx.h"

/* Text or bytes of the caller. */
typedef struct cow_text {
  const char* data;
  size_t length;
} cow_text;

/* Tokens of the caller. */
typedef struct cow_tokens {
  const int32_t* data;
  size_t count;
} cow_tokens;

/* Texts of the caller. */
typedef struct cow_texts {
  const cow_mlx_text* data;
  size_t count;
} cow_texts;

/* See arrays.h. */
typedef struct cow_array cow_array;

/* The values of a run and their arrays: the caller holds an array until the engine takes it over
 * and leaves NULL. */
typedef struct cow_values {
  const cow_mlx_value* given;
  cow_array** arrays;
  size_t count;
} cow_values;

/* A result of a run. */
typedef struct cow_result {
  bool is_host; /* it must have this dtype and shape */
  int32_t dtype;
  int32_t rank;
  const int64_t* shape;
  cow_array* array; /* receives the result, which the caller then holds */
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

/* Arrays of the caller. */
typedef struct cow_handles {
  const cow_mlx_array* data;
  size_t count;
} cow_handles;

/* Buffers for results of variable size; conventions 6 of cow_mlx.h. */
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
  size_t* count; /* NULL: the count is the capacity */
} cow_arrays_out;

#endif
