/* Checks of the arguments of public calls, and structs that grow: they are read from hosts that
 * were compiled with an older or a newer header, and written for those. */
#ifndef COW_CHECKS_H
#define COW_CHECKS_H

#include <string.h>

#include "base/error.h"

/* ---------------------------------------------------------- Texts and tokens */

/* Lengths beyond these are taken for mistakes, such as (size_t)-2. */
#define MAX_BYTES (SIZE_MAX / 2)
#define ACCEPTED_BYTES "at most half of SIZE_MAX, or COW_MLX_NUL"
#define MAX_TOKENS ((size_t)1 << 31)
#define ACCEPTED_COUNT "at most 2147483648"

static inline cow_text text_of(const char* data, size_t length) {
  cow_text text = {data, length == COW_MLX_NUL && data ? strlen(data) : length};
  return text;
}

cow_mlx_status cow_check_texts(const char* operation, const char* name, const cow_mlx_text* texts,
                               size_t count);

#define REQUIRE_TEXT(text, length)                                                                 \
  if (!(text) && (length) > 0) INVALID_NULL(#text, "%s is NULL, but %s is not 0", #text, #length); \
  if ((length) > MAX_BYTES && (length) != COW_MLX_NUL) INVALID_SIZE(#length, length, ACCEPTED_BYTES)
#define REQUIRE_TOKENS(tokens, count)                                      \
  if (!(tokens) && (count) > 0)                                            \
    INVALID_NULL(#tokens, "%s is NULL, but %s is not 0", #tokens, #count); \
  if ((count) > MAX_TOKENS) INVALID_SIZE(#count, count, ACCEPTED_COUNT)
#define REQUIRE_TEXTS(texts, count) \
  REQUIRE_TOKENS(texts, count);     \
  TRY(cow_check_texts(OPERATION, #texts, texts, count))

/* -------------------------------------------------------- Structs that grow */

/* Fill *out (of `size` bytes, already holding the defaults) from the host's
 * struct. EINVAL if its struct_size is 0, or larger with bytes set that this
 * library does not know. `host` may be NULL. */
cow_mlx_status cow_params_read(const char* operation, const char* name, const void* host, void* out,
                               size_t size);

/* Whether a host's struct without an _init function has its size. `name` is the parameter, `noun`
 * its type without cow_mlx_. */
cow_mlx_status cow_params_check_size(const char* operation, const char* name, const char* noun,
                                     const void* host);

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
