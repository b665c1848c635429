/* What the public calls check before they reach the dispatch thread. */
#ifndef COW_CHECKS_H
#define COW_CHECKS_H

#include <string.h>

#include "error.h"
#include "params.h"
#include "runtime.h"

/* "cow_mlx_model_load" is called model_load in messages. */
#define OPERATION (__func__ + sizeof "cow_mlx_" - 1)

#define INVALID(...) return cow_error(COW_MLX_EINVAL, __VA_ARGS__)

/* Leave the call if it cannot be made now, or if a pointer is NULL. */
#define BEGIN_CALL                                         \
  do {                                                     \
    cow_error_clear();                                     \
    cow_mlx_status status_ = cow_runtime_check(OPERATION); \
    if (status_ != COW_MLX_OK) return status_;             \
  } while (0)
#define REQUIRE(pointer) \
  if (!(pointer)) INVALID("%s: %s is NULL", OPERATION, #pointer)
#define REQUIRE_BUFFER(buffer, capacity)                                                         \
  if (!(buffer) && (capacity) > 0)                                                               \
    INVALID("%s: %s is NULL, but %s is %zu", OPERATION, #buffer, #capacity, (size_t)(capacity)); \
  if ((capacity) > SIZE_MAX / 2 / sizeof *(buffer))                                              \
  INVALID("%s: %s is %zu, more than any buffer", OPERATION, #capacity, (size_t)(capacity))
#define TRY(call)                              \
  do {                                         \
    cow_mlx_status status_ = (call);           \
    if (status_ != COW_MLX_OK) return status_; \
  } while (0)

#define CALL(request) cow_runtime_call(&(request), OPERATION)

/* Lengths beyond these are taken for mistakes, such as (size_t)-2. */
#define MAX_BYTES (SIZE_MAX / 2)
#define MAX_TOKENS ((size_t)1 << 31)

static inline cow_text text_of(const char* data, size_t length) {
  cow_text text = {data, length == COW_MLX_NUL && data ? strlen(data) : length};
  return text;
}

static inline cow_mlx_status cow_check_texts(const char* operation, const char* name,
                                             const cow_mlx_text* texts, size_t count) {
  if (count > MAX_TOKENS) INVALID("%s: count is %zu, more than any batch", operation, count);
  for (size_t i = 0; i < count; i++) {
    if (!texts[i].data && texts[i].length > 0) {
      INVALID("%s: %s[%zu].data is NULL, but its length is not 0", operation, name, i);
    }
    if (texts[i].length > MAX_BYTES && texts[i].length != COW_MLX_NUL) {
      INVALID("%s: %s[%zu].length is %zu, more than any text", operation, name, i, texts[i].length);
    }
  }
  return COW_MLX_OK;
}

#define REQUIRE_TEXT(text, length)                                         \
  if (!(text) && (length) > 0)                                             \
    INVALID("%s: %s is NULL, but %s is not 0", OPERATION, #text, #length); \
  if ((length) > MAX_BYTES && (length) != COW_MLX_NUL)                     \
  INVALID("%s: %s is %zu, more than any text", OPERATION, #length, (size_t)(length))
#define REQUIRE_TOKENS(tokens, count)                                       \
  if (!(tokens) && (count) > 0)                                             \
    INVALID("%s: %s is NULL, but %s is not 0", OPERATION, #tokens, #count); \
  if ((count) > MAX_TOKENS)                                                 \
  INVALID("%s: %s is %zu, more than any sequence", OPERATION, #count, (size_t)(count))
#define REQUIRE_TEXTS(texts, count)                                        \
  if (!(texts) && (count) > 0)                                             \
    INVALID("%s: %s is NULL, but %s is not 0", OPERATION, #texts, #count); \
  TRY(cow_check_texts(OPERATION, #texts, texts, count))

#endif
