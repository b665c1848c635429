#include "error.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[COW_MESSAGE_SIZE];

char* cow_error_buffer(void) { return message; }

void cow_error_clear(void) { message[0] = '\0'; }

cow_mlx_status cow_error(cow_mlx_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return status;
}

const char* cow_mlx_error_message(void) { return message; }

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
