/* Arrays of numbers, to and from the host's memory.
 * Part of cow_mlx.h, which is what hosts include. */
#ifndef COW_MLX_ARRAY_H
#define COW_MLX_ARRAY_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- Arrays */
/* An array is a value: nothing changes it. Its calls never stop contexts that generate, and copy
 * on the calling thread. */

/** The one list of element types: X(name, value, bytes). 16-bit floats travel as their bits. */
#define COW_MLX_DTYPES(X) \
  X(BOOL, 1, 1)           \
  X(UINT8, 2, 1)          \
  X(UINT16, 3, 2)         \
  X(UINT32, 4, 4)         \
  X(UINT64, 5, 8)         \
  X(INT8, 6, 1)           \
  X(INT16, 7, 2)          \
  X(INT32, 8, 4)          \
  X(INT64, 9, 8)          \
  X(FLOAT16, 10, 2)       \
  X(BFLOAT16, 11, 2)      \
  X(FLOAT32, 12, 4)       \
  X(FLOAT64, 13, 8)       \
  X(COMPLEX64, 14, 8)

enum {
#define COW_MLX_DTYPE_ENUMERATOR(name, value, bytes) COW_MLX_##name = value,
  COW_MLX_DTYPES(COW_MLX_DTYPE_ENUMERATOR)
#undef COW_MLX_DTYPE_ENUMERATOR
};

/** The most dimensions that an array has. */
#define COW_MLX_MAX_RANK 8

/**
 * The host's memory: a buffer, and a strided view of it.
 *
 * Every element has to lie in the buffer, or the call is COW_MLX_EINVAL; sums and products that
 * overflow are found. A view without elements needs no data. Elements need no alignment.
 */
typedef struct cow_mlx_tensor {
  size_t struct_size;     /**< sizeof(cow_mlx_tensor) */
  void* data;             /**< the buffer; may be NULL if there are no elements */
  size_t bytes;           /**< of the buffer */
  size_t offset;          /**< bytes before the element at index 0 of every dimension */
  int32_t dtype;          /**< one of COW_MLX_DTYPES */
  int32_t rank;           /**< number of dimensions, 0 to COW_MLX_MAX_RANK */
  const int64_t* shape;   /**< rank sizes, 0 to 2147483647; may be NULL if rank is 0 */
  const int64_t* strides; /**< rank steps in elements, may be negative or 0, and any number where
                               the size is 1; NULL: row-major */
} cow_mlx_tensor;

/**
 * Make an array of the host's memory, which is copied.
 *
 * Of a BOOL every byte but 0 is true.
 *
 * @param from  what is copied
 * @param out   receives the handle
 * @retval COW_MLX_EUNSUPPORTED  a dtype that the device lacks: FLOAT64 on a GPU
 * @retval COW_MLX_ENOMEM        too little memory, or less within runtime_params.memory_limit; or
 *                               16,777,215 arrays are open
 */
COW_MLX_API cow_mlx_status cow_mlx_array_create(const cow_mlx_tensor* from, cow_mlx_array* out);

/**
 * Copy an array's elements into the host's memory, once they are computed.
 *
 * @param to  of the array's dtype and shape; strides such that no two elements share memory: each
 *            reaches past all that the smaller ones span
 * @retval COW_MLX_EINVAL  another dtype or shape, or elements that overlap
 */
COW_MLX_API cow_mlx_status cow_mlx_array_read(cow_mlx_array array, const cow_mlx_tensor* to);

/**
 * Tell an array's dtype and shape. Never waits, not even for what is still to be computed.
 *
 * @param dtype  receives one of COW_MLX_DTYPES
 * @param shape  receives *rank sizes
 * @param rank   receives the number of dimensions, at most COW_MLX_MAX_RANK
 * @retval COW_MLX_EBUFFER  capacity is less than *rank, which is written
 */
COW_MLX_API cow_mlx_status cow_mlx_array_type(cow_mlx_array array, int32_t* dtype, int64_t* shape,
                                              size_t capacity, size_t* rank);

/**
 * Look at an array's elements where they are, once they are computed: nothing is copied.
 *
 * They are read-only, row-major, and stay as long as the handle is open and the runtime runs.
 *
 * @param data    receives where the first element is
 * @param layout  receives the same as a tensor, its shape and strides included; may be NULL
 */
COW_MLX_API cow_mlx_status cow_mlx_array_view(cow_mlx_array array, const void** data,
                                              cow_mlx_tensor* layout);

/**
 * Wait until an array's elements are there. What no run that was submitted will bring is computed
 * now, however long that takes.
 *
 * Where a run fails, this call and every other that needs the elements has its status and message.
 *
 * @param timeout_ms  milliseconds to wait for a run at most; UINT32_MAX: as long as it takes
 * @retval COW_MLX_ETIMEDOUT  not yet; the run goes on
 */
COW_MLX_API cow_mlx_status cow_mlx_array_wait(cow_mlx_array array, uint32_t timeout_ms);

/**
 * Apply one operation to arrays. Shapes and dtypes are checked now; values are computed when they
 * are needed. Where the operation checks values, as those of indices, these are computed now.
 *
 * cow_mlx_operations_info() tells of all operations. A computation of many is better a program.
 *
 * @param operation        its name, or another that it has
 * @param inputs           count arrays, 0 for one that is optional and left out. Those that a run
 *                         has still to make are waited for
 * @param attributes_json  an object; may be NULL
 * @param outputs          receives a handle for each result
 * @param length           receives how many there are
 * @retval COW_MLX_EINVAL   also: no such operation, inputs or attributes that it does not take
 * @retval COW_MLX_EBUFFER  capacity is less than *length, which is written
 */
COW_MLX_API cow_mlx_status cow_mlx_array_apply(const char* operation, const cow_mlx_array* inputs,
                                               size_t count, const char* attributes_json,
                                               cow_mlx_array* outputs, size_t capacity,
                                               size_t* length);

/** Free the handle. Never waits. Calls under way on the array, and what is made of it, go on. */
COW_MLX_API cow_mlx_status cow_mlx_array_free(cow_mlx_array array);

/** A tensor of DLPack 1.x, which dlpack.h describes: github.com/dmlc/dlpack. */
struct DLManagedTensorVersioned;

/**
 * Make an array of a DLPack tensor, which is copied. Then its deleter has been called.
 *
 * @param managed  of the CPU (kDLCPU), in any layout; after a failure still the caller's
 * @param out      receives the handle
 * @retval COW_MLX_EUNSUPPORTED  another device, major version or dtype; more than one lane
 * @retval COW_MLX_ENOMEM        too little memory, or 16,777,215 arrays are open
 */
COW_MLX_API cow_mlx_status cow_mlx_array_from_dlpack(struct DLManagedTensorVersioned* managed,
                                                     cow_mlx_array* out);

/**
 * Make a DLPack tensor of an array, once it is computed. Its memory is read-only and row-major.
 *
 * What hosts have copied in is shared, not copied again. The tensor outlives the array and the
 * runtime; its deleter may be called on any thread, at any time.
 *
 * @param out  receives the tensor, which the caller's code frees by its deleter
 */
COW_MLX_API cow_mlx_status cow_mlx_array_to_dlpack(cow_mlx_array array,
                                                   struct DLManagedTensorVersioned** out);

/**
 * Load arrays of a safetensors file: all that are named, or none. Sizes are checked before memory
 * is taken.
 *
 * @param names   count of them, as cow_mlx_arrays_info() tells them
 * @param arrays  receives count handles, in the order of the names
 * @retval COW_MLX_ENOENT        no such file
 * @retval COW_MLX_EFORMAT       no safetensors, or damaged
 * @retval COW_MLX_EINVAL        the file has no array of that name
 * @retval COW_MLX_EUNSUPPORTED  a dtype that the device, or the library, lacks
 */
COW_MLX_API cow_mlx_status cow_mlx_arrays_load(const char* path, const char* const* names,
                                               size_t count, cow_mlx_array* arrays);

/**
 * Save arrays, once they are computed, as a safetensors file. An older file stays until the new one
 * is whole.
 *
 * @param names   count of them, each once
 * @param arrays  count of them
 * @retval COW_MLX_ENOENT  no such folder
 */
COW_MLX_API cow_mlx_status cow_mlx_arrays_save(const char* path, const char* const* names,
                                               const cow_mlx_array* arrays, size_t count);

/**
 * Tell what a safetensors file holds, as a JSON object: "tensors", by name an object of "dtype"
 * (such as "float32"; null if the library has none), "shape" and "bytes", and "metadata", texts by
 * name.
 *
 * @retval COW_MLX_ENOENT   no such file
 * @retval COW_MLX_EFORMAT  no safetensors, or damaged
 * @retval COW_MLX_EBUFFER  capacity is too small; *length is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_arrays_info(const char* path, char* buffer, size_t capacity,
                                               size_t* length);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_ARRAY_H */
