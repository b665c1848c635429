#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/checks.h"

static _Thread_local cow_failure failure;

cow_failure* cow_error_failure(void) { return &failure; }

void cow_error_copy(cow_failure* to, const cow_failure* from) {
  strcpy(to->message, from->message);
  strcpy(to->details, from->details);
}

void cow_error_clear(void) { failure.message[0] = failure.details[0] = '\0'; }

cow_mlx_status cow_error(cow_mlx_status status, const char* operation, cow_reason reason,
                         const cow_detail* details, const char* format, ...) {
  int begin = snprintf(failure.message, sizeof failure.message, "%s: ", operation);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(failure.message + begin, sizeof failure.message - (size_t)begin, format, arguments);
  va_end(arguments);
  cow_details_write(failure.details, sizeof failure.details, operation, reason, details);
  return status;
}

const char* cow_mlx_error_message(void) { return failure.message; }

/* It leaves what it tells of as it is, so that a call with a larger buffer finds it. */
cow_mlx_status cow_mlx_error_details(char* buffer, size_t capacity, size_t* length) {
  REQUIRE_BUFFER(buffer, capacity);
  REQUIRE(length);
  const char* details = failure.details[0] ? failure.details : "{}";
  size_t size = strlen(details);
  *length = size;
  if (!buffer) return COW_MLX_OK;
  if (size > capacity) return COW_MLX_EBUFFER;
  memcpy(buffer, details, capacity > size ? size + 1 : size);
  return COW_MLX_OK;
}

const char* cow_mlx_status_name(cow_mlx_status status) {
  switch (status) {
#define STATUS_NAME(name, value, meaning) \
  case COW_MLX_##name:                    \
    return #name;
    COW_MLX_STATUSES(STATUS_NAME)
#undef STATUS_NAME
    default:
      return "UNKNOWN";
  }
}

const char* cow_mlx_version(void) { return COW_MLX_VERSION; }

uint32_t cow_mlx_abi_version(void) { return COW_MLX_ABI_VERSION; }
