/* Host memory as cow_mlx_tensor describes it: checked once, then copied from or into. */
#ifndef COW_TENSOR_H
#define COW_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cow_mlx.h"

/* The dtype, shape and size of an array. */
typedef struct cow_array_type {
  int32_t dtype;
  int32_t rank;
  int64_t shape[COW_MLX_MAX_RANK];
  int64_t strides[COW_MLX_MAX_RANK]; /* row-major, in elements */
  size_t bytes;
} cow_array_type;

/* A tensor whose every element lies in its buffer. */
typedef struct cow_tensor {
  cow_array_type type;
  char* first;                       /* the element at index 0; NULL if there are no elements */
  int64_t strides[COW_MLX_MAX_RANK]; /* in bytes */
} cow_tensor;

/* Bytes of an element; 0 if there is no such dtype. */
size_t cow_dtype_bytes(int32_t dtype);

/* Room for a shape, or for the name of a dtype, as text. */
enum { COW_SHAPE_TEXT = 24 * COW_MLX_MAX_RANK, COW_DTYPE_TEXT = 24 };

/* "[2, 3]" and "float32". Both return `text`. */
const char* cow_shape_text(const int64_t* shape, int32_t rank, char text[COW_SHAPE_TEXT]);
const char* cow_dtype_text(int32_t dtype, char text[COW_DTYPE_TEXT]);

/* Make a type from a host's dtype, rank and shape. `name` is the parameter in messages. */
cow_mlx_status cow_type_read(const char* operation, const char* name, int32_t dtype, int32_t rank,
                             const int64_t* shape, cow_array_type* out);

/* Fill in strides and bytes of a type that fits memory. */
void cow_type_complete(cow_array_type* type);

/* Check a host's tensor, which is not NULL. */
cow_mlx_status cow_tensor_check(const char* operation, const char* name, const cow_mlx_tensor* host,
                                cow_tensor* out);

/* Place elements in memory of unknown size: the element at index 0 lies `offset` bytes behind
 * `data`, `strides` are in elements, or NULL if row-major. The type has been checked. */
cow_mlx_status cow_tensor_place(const char* operation, const char* name, const cow_array_type* type,
                                void* data, uint64_t offset, const int64_t* strides,
                                cow_tensor* out);

/* The failure of a member that is NULL. */
cow_mlx_status cow_tensor_null(const char* operation, const char* name, const char* member);

/* EINVAL if two elements may share memory. */
cow_mlx_status cow_tensor_check_apart(const char* operation, const char* name,
                                      const cow_tensor* tensor);

/* Copy all elements to row-major memory; a true BOOL becomes 1. */
void cow_tensor_gather(const cow_tensor* from, void* to);

/* Copy row-major memory to all elements. */
void cow_tensor_scatter(const void* from, const cow_tensor* to);

#endif
