/* What the public calls check before they reach the dispatch thread. */
#ifndef COW_CHECKS_H
#define COW_CHECKS_H

#include <string.h>

#include "base/error.h"
#include "base/params.h"
#include "boot/runtime.h"

/* "cow_mlx_model_load" is called model_load in messages. */
#define OPERATION (__func__ + sizeof "cow_mlx_" - 1)

#define INVALID(reason, details, ...) \
  return cow_error(COW_MLX_EINVAL, OPERATION, COW_REASON_##reason, details, __VA_ARGS__)
#define INVALID_NULL(name, ...) \
  INVALID(null_argument, DETAILS(TEXT_DETAIL("argument", name)), __VA_ARGS__)
#define INVALID_SIZE(name, size, accepted)                                   \
  INVALID(out_of_range,                                                      \
          DETAILS(TEXT_DETAIL("argument", name), SIZE_DETAIL("value", size), \
                  TEXT_DETAIL("accepted", accepted)),                        \
          "%s is %zu, must be %s", name, (size_t)(size), accepted)

/* Leave the call if it cannot be made now, or if a pointer is NULL. */
#define BEGIN_CALL                                         \
  do {                                                     \
    cow_error_clear();                                     \
    cow_mlx_status status_ = cow_runtime_check(OPERATION); \
    if (status_ != COW_MLX_OK) return status_;             \
  } while (0)
#define REQUIRE(pointer) \
  if (!(pointer)) INVALID_NULL(#pointer, "%s is NULL", #pointer)
#define REQUIRE_BUFFER(buffer, capacity)                                                        \
  if (!(buffer) && (capacity) > 0)                                                              \
    INVALID_NULL(#buffer, "%s is NULL, but %s is %zu", #buffer, #capacity, (size_t)(capacity)); \
  if ((capacity) > SIZE_MAX / 2 / sizeof *(buffer))                                             \
  INVALID_SIZE(#capacity, capacity, "what memory can hold")
#define TRY(call)                              \
  do {                                         \
    cow_mlx_status status_ = (call);           \
    if (status_ != COW_MLX_OK) return status_; \
  } while (0)

#define CALL(request) cow_runtime_call(&(request), OPERATION)

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

#endif
