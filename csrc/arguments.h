/* What the typed arguments of operations.h are made of. */
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
