/* Structs that grow: reading them from hosts that were compiled with an older
 * or a newer header, and writing them for those. */
#ifndef COW_PARAMS_H
#define COW_PARAMS_H

#include "bridge.h"

/* Fill *out (of `size` bytes, already holding the defaults) from the host's
 * struct. EINVAL if its struct_size is 0, or larger with bytes set that this
 * library does not know. `host` may be NULL. */
cow_mlx_status cow_params_read(const char* operation, const char* name, const void* host, void* out,
                               size_t size);

/* Whether a host's struct without an _init function tells its size. `name` is the parameter, `noun`
 * its type without cow_mlx_. */
cow_mlx_status cow_params_check_size(const char* operation, const char* name, const char* noun,
                                     const void* host);

/* The same of an output, which is called as its type. */
cow_mlx_status cow_params_check_out(const char* operation, const char* name, const void* host);

/* Copy as much of *from (of `size` bytes) as the host's struct holds. */
void cow_params_write(void* host, const void* from, size_t size);

/* Fill the host's struct of `host_size` bytes with defaults of `size` bytes; a newer struct's
 * members that this library does not know become 0. */
void cow_params_init(void* host, size_t host_size, const void* defaults, size_t size);

/* COW_READ_PARAMS(context, "context_create", params, &effective) */
#define COW_READ_PARAMS(noun, operation, host, out)  \
  (cow_mlx_##noun##_params_init(out, sizeof *(out)), \
   cow_params_read(operation, #noun "_params", host, out, sizeof *(out)))

#endif
