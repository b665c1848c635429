/* Arrays of numbers, to and from the host's memory.
 * Part of cow_mlx.h; include that. */
#ifndef COW_MLX_ARRAY_H
#define COW_MLX_ARRAY_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- Arrays */
/* An array is a value: nothing changes it. Its calls copy on the calling thread and never stop
 * contexts that generate. */

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

/** The maximum number of dimensions of an array. */
#define COW_MLX_MAX_RANK 8

/**
 * The host's memory: a buffer, and a strided view of it.
 *
 * Every element must lie in the buffer, or the call is COW_MLX_EINVAL; sums and products that
 * overflow are detected. A view without elements needs no data. Elements need no alignment.
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
 * Create an array from host memory, which is copied.
 *
 * Every byte of a BOOL except 0 is true.
 *
 * @param from  the memory to copy
 * @param out   receives the handle
 * @retval COW_MLX_EUNSUPPORTED  a dtype that the device lacks: FLOAT64 on a GPU
 * @retval COW_MLX_ENOMEM        too little memory, or runtime_params.memory_limit is reached; or
 *                               16,777,215 arrays are open
 */
COW_MLX_API cow_mlx_status cow_mlx_array_create(const cow_mlx_tensor* from, cow_mlx_array* out);

/**
 * Copy an array's elements into host memory, once they are computed.
 *
 * @param to  memory with the array's dtype and shape. No two elements may share memory: each stride
 *            must reach past the span of all smaller ones
 * @retval COW_MLX_EINVAL  another dtype or shape, or elements that overlap
 */
COW_MLX_API cow_mlx_status cow_mlx_array_read(cow_mlx_array array, const cow_mlx_tensor* to);

/**
 * Get an array's dtype and shape. Never waits, not even for pending computations.
 *
 * @param dtype  receives one of COW_MLX_DTYPES
 * @param shape  receives *rank sizes
 * @param rank   receives the number of dimensions, at most COW_MLX_MAX_RANK
 * @retval COW_MLX_EBUFFER  capacity is less than *rank, which is written
 */
COW_MLX_API cow_mlx_status cow_mlx_array_type(cow_mlx_array array, int32_t* dtype, int64_t* shape,
                                              size_t capacity, size_t* rank);

/**
 * Access an array's elements in place, once they are computed: nothing is copied.
 *
 * They are read-only, row-major, and valid as long as the handle is open and the runtime runs.
 *
 * @param data    receives the address of the first element
 * @param layout  receives the same as a tensor, its shape and strides included; may be NULL
 */
COW_MLX_API cow_mlx_status cow_mlx_array_view(cow_mlx_array array, const void** data,
                                              cow_mlx_tensor* COW_MLX_NULLABLE layout);

/**
 * Wait until an array's elements are computed. Elements that no submitted run computes are computed
 * now, however long that takes.
 *
 * If a run fails, this call and every other call that needs the elements return its status and
 * message.
 *
 * @param timeout_ms  milliseconds to wait for a run at most; UINT32_MAX: no limit
 * @retval COW_MLX_ETIMEDOUT  not yet; the run continues
 */
COW_MLX_API cow_mlx_status cow_mlx_array_wait(cow_mlx_array array, uint32_t timeout_ms);

/**
 * Apply one operation to arrays. Shapes and dtypes are checked now. Values are computed when they
 * are needed; most operations on small arrays compute them now. If the operation checks values,
 * such as indices, these are computed now.
 *
 * cow_mlx_operations_info() lists all operations. For a computation of many operations, use a
 * program.
 *
 * @param operation        its name, or one of its aliases
 * @param inputs           count arrays, 0 for an optional one that is left out. The call waits for
 *                         arrays that a run has not computed yet
 * @param attributes_json  an object; may be NULL
 * @param outputs          receives a handle for each result
 * @param length           receives the number of results
 * @retval COW_MLX_EINVAL   also: unknown operation, or inputs or attributes that it does not
 * accept
 * @retval COW_MLX_EBUFFER  capacity is less than *length, which is written
 */
COW_MLX_API cow_mlx_status cow_mlx_array_apply(const char* operation, const cow_mlx_array* inputs,
                                               size_t count,
                                               const char* COW_MLX_NULLABLE attributes_json,
                                               cow_mlx_array* outputs, size_t capacity,
                                               size_t* length);

/** Free the handle. Never waits. Running calls on the array, and arrays made from it, continue. */
COW_MLX_API cow_mlx_status cow_mlx_array_free(cow_mlx_array array);

/** A tensor of DLPack 1.x, which dlpack.h describes: github.com/dmlc/dlpack. */
struct DLManagedTensorVersioned;

/**
 * Create an array from a DLPack tensor, which is copied. On success its deleter has been called.
 *
 * @param managed  a tensor of the CPU (kDLCPU), in any layout; after a failure the caller still
 *                 owns it
 * @param out      receives the handle
 * @retval COW_MLX_EUNSUPPORTED  another device, major version or dtype; more than one lane
 * @retval COW_MLX_ENOMEM        too little memory, or 16,777,215 arrays are open
 */
COW_MLX_API cow_mlx_status cow_mlx_array_from_dlpack(struct DLManagedTensorVersioned* managed,
                                                     cow_mlx_array* out);

/**
 * Create a DLPack tensor from an array, once it is computed. Its memory is read-only and
 * row-major.
 *
 * Memory that was copied from the host is shared, not copied again. The tensor outlives the array
 * and the runtime; its deleter may be called on any thread, at any time.
 *
 * @param out  receives the tensor, which the caller frees by its deleter
 */
COW_MLX_API cow_mlx_status cow_mlx_array_to_dlpack(cow_mlx_array array,
                                                   struct DLManagedTensorVersioned** out);

/**
 * Load the named arrays of a safetensors file, all or none. Sizes are checked before memory is
 * allocated.
 *
 * @param names   count names, as in cow_mlx_arrays_info()
 * @param arrays  receives count handles, in the order of the names
 * @retval COW_MLX_ENOENT        no such file
 * @retval COW_MLX_EFORMAT       not a safetensors file, or damaged
 * @retval COW_MLX_EINVAL        the file has no array of that name
 * @retval COW_MLX_EUNSUPPORTED  a dtype that the device, or the library, lacks
 */
COW_MLX_API cow_mlx_status cow_mlx_arrays_load(const char* path, const char* const* names,
                                               size_t count, cow_mlx_array* arrays);

/**
 * Save arrays, once they are computed, as a safetensors file. An older file stays until the new
 * one is complete.
 *
 * @param names   count different names
 * @param arrays  count arrays
 * @retval COW_MLX_ENOENT  no such folder
 */
COW_MLX_API cow_mlx_status cow_mlx_arrays_save(const char* path, const char* const* names,
                                               const cow_mlx_array* arrays, size_t count);

/**
 * Describe a safetensors file, as a JSON object: "tensors", by name an object of "dtype" (such as
 * "float32"; null if the library does not support it), "shape" and "bytes", and "metadata", texts
 * by name.
 *
 * @retval COW_MLX_ENOENT   no such file
 * @retval COW_MLX_EFORMAT  not a safetensors file, or damaged
 * @retval COW_MLX_EBUFFER  capacity is too small; *length is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_arrays_info(const char* path, char* buffer, size_t capacity,
                                               size_t* length);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_ARRAY_H */
