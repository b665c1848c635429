/* Each thread's last failed call: a message for people, and a JSON object for programs. */
#ifndef COW_ERROR_H
#define COW_ERROR_H

#include "bridge.h"

/* COW_REASON_null_argument and so on: the header's list. */
typedef enum cow_reason {
#define COW_REASON_ENUMERATOR(name, keys, meaning) COW_REASON_##name,
  COW_MLX_REASONS(COW_REASON_ENUMERATOR)
#undef COW_REASON_ENUMERATOR
} cow_reason;

/* One detail: a text, or a number where that is NULL. A NULL key ends a list of them. */
typedef struct cow_detail {
  const char* key;
  const char* text;
  bool is_negative;
  uint64_t number; /* without its sign */
} cow_detail;

#define DETAILS(...) ((const cow_detail[]){__VA_ARGS__, {NULL, NULL, false, 0}})
#define TEXT_DETAIL(key, value) {key, value, false, 0}
#define SIZE_DETAIL(key, value) {key, NULL, false, (uint64_t)(value)}
#define INT_DETAIL(key, value) \
  {key, NULL, (value) < 0, (value) < 0 ? -(uint64_t)(value) : (uint64_t)(value)}

/* The last failed call of a thread; "" if none has failed. */
typedef struct cow_failure {
  char message[COW_MESSAGE_SIZE];
  char details[COW_DETAILS_SIZE]; /* a JSON object, or "" */
} cow_failure;

/* The failure of the calling thread. */
cow_failure* cow_error_failure(void);

void cow_error_copy(cow_failure* to, const cow_failure* from);

/* A call that can fail begins. */
void cow_error_clear(void);

/* Set the message, "operation: " before it, and the details; return the status. In one statement at
 * the place of failure. `details` is NULL or made by DETAILS(). */
__attribute__((format(printf, 5, 6))) cow_mlx_status cow_error(cow_mlx_status status,
                                                               const char* operation,
                                                               cow_reason reason,
                                                               const cow_detail* details,
                                                               const char* format, ...);

/* Failures of several calls. "threads is -1, must be at least 0" and so on. */
cow_mlx_status cow_error_range(const char* operation, const char* argument, int64_t value,
                               const char* accepted);
cow_mlx_status cow_error_size(const char* operation, const char* argument, size_t value,
                              const char* accepted);
cow_mlx_status cow_error_handle(const char* operation, const char* kind, int64_t handle);
cow_mlx_status cow_error_not_running(const char* operation);

/* Write {"operation": ..., "reason": ..., "details": {...}} with a terminator. A detail that does
 * not fit is left out; bytes that are no UTF-8 become "?". */
void cow_details_write(char* buffer, size_t capacity, const char* operation, cow_reason reason,
                       const cow_detail* details);

/* ------------------------------------------------ For the bodies of public calls */

/* "cow_mlx_model_load" is called model_load in messages. */
#define OPERATION (__func__ + sizeof "cow_mlx_" - 1)

#define INVALID(reason, details, ...) \
  return cow_error(COW_MLX_EINVAL, OPERATION, COW_REASON_##reason, details, __VA_ARGS__)
#define INVALID_NULL(name, ...) \
  INVALID(null_argument, DETAILS(TEXT_DETAIL("argument", name)), __VA_ARGS__)
#define INVALID_SIZE(name, size, accepted) \
  return cow_error_size(OPERATION, name, (size_t)(size), accepted)

/* Leave the call if a pointer is NULL, or if another call failed. */
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

#endif
