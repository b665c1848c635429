/* The open arrays: types, places of elements, and holders. Knows no Python; any thread may call. */
#ifndef COW_ARRAYS_H
#define COW_ARRAYS_H

#include "bridge.h"
#include "arrays/memory.h"
#include "arrays/tensor.h"

/* ------------------------------------------------------------------ Arrays */

/* The state of an array. Its type never changes; `data` is set once it is computed, and then stays
 * valid while the array is held. */
typedef struct cow_array_state {
  const cow_array_type* type;
  const void* data;
} cow_array_state;

/* Whether an array of the dtype can be opened now. */
cow_mlx_status cow_arrays_check(const char* operation, int32_t dtype);

/* Open an array of memory of cow_memory_new(), which is taken over on success. */
cow_mlx_status cow_arrays_add_memory(const char* operation, const cow_array_type* type, void* data,
                                     cow_mlx_array* out);

/* Hold an array that has no handle, and whose elements are of `memory`, which is taken over, or
 * where the host has them; NULL if there is no memory for it. */
cow_array* cow_arrays_new(const cow_array_type* type, void* memory, const void* data);

/* Open a handle for an array that the caller holds. */
cow_mlx_status cow_arrays_open(const char* operation, cow_array* array, cow_mlx_array* out);

/* Hold the array of a handle. */
cow_mlx_status cow_arrays_hold(const char* operation, cow_mlx_array handle, cow_array** out);
void cow_arrays_let_go(cow_array* array);

cow_array_state cow_array_look(cow_array* array);

/* Hold the memory of cow_memory_new() that has the elements, whatever becomes of the array; NULL if
 * they are the engine's. */
void* cow_array_share(cow_array* array);

/* Keep the elements where they are while the handle is open: the host knows the address. */
void cow_array_pin(cow_array* array);

/* Close a handle; false if it is not open. */
bool cow_arrays_close(cow_mlx_array handle);

/* Let a forked child let go of arrays and of their memory. */
void cow_arrays_before_fork(void);
void cow_arrays_after_fork(void);

/* ------------------------------------------------------------ For the bridge */

/* Arrays can be opened from now on; `has_float64`: of that dtype too. */
void cow_arrays_start(bool has_float64);

/* Close every handle. No array can be opened until the next start. */
void cow_arrays_stop(void);

/* How many are open. */
size_t cow_arrays_count(void);

/* Open an array of an object of the engine, whose reference is taken over; 0 if there is no memory
 * or no handle. `data`: its row-major elements; NULL if it is not computed. */
int64_t cow_arrays_add_object(void* object, const void* data, int32_t dtype, int32_t rank,
                              const int64_t* shape);

/* The same without a handle; holds and describes the array. NULL if there is no memory for it. */
cow_array* cow_arrays_hold_object(void* object, const void* data, int32_t dtype, int32_t rank,
                                  const int64_t* shape, cow_array_parts* out);

/* Open an array of memory of cow_memory_new(), which is taken over on success; 0 as above. */
int64_t cow_arrays_add_host(void* data, int32_t dtype, int32_t rank, const int64_t* shape);

/* Hold the array of a handle and describe it; NULL if it is not open. */
cow_array* cow_arrays_take(int64_t handle, cow_array_parts* out);

/* Describe an array that the caller holds. */
void cow_arrays_tell(cow_array* array, cow_array_parts* out);

/* Give an array, which the caller holds, an object; a reference to it is taken over, and that to
 * the last one returned. `data` is where its elements are, or NULL if they are not computed. Then
 * the array's own memory is let go, unless somebody may know it. */
void* cow_arrays_set_object(cow_array* array, void* object, const void* data);

/* Take the memory of an array, which the caller holds, for an object that will have the elements
 * where they are; NULL if there is none, or others have it for good. Nobody may take it once more:
 * cow_arrays_set_object() or cow_arrays_return_memory() follows at once. */
void* cow_arrays_take_memory(cow_array* array);
void cow_arrays_return_memory(cow_array* array, void* memory);

/* An object that is no longer needed, with a reference, or NULL. */
void* cow_arrays_next_dropped(void);

#endif
