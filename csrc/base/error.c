#include "base/error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ----------------------------------------------------------------- Details */

/* A JSON text that grows. Once a part does not fit, nothing more is written. */
typedef struct writer {
  char* buffer;
  size_t capacity;
  size_t length;
  bool full;
} writer;

static void put(writer* out, const char* bytes, size_t count) {
  out->full = out->full || count > out->capacity - out->length;
  if (out->full) return;
  memcpy(out->buffer + out->length, bytes, count);
  out->length += count;
}

static void put_plain(writer* out, const char* text) { put(out, text, strlen(text)); }

/* The size of a UTF-8 character in bytes; 0 if it is invalid. */
static size_t character_size(const unsigned char* text) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (text[0] < 0x80) return 1;
  size_t size = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
  uint32_t point = text[0] & (0x7fu >> size);
  for (size_t at = 1; at < size; at++) {
    if ((text[at] & 0xc0) != 0x80) return 0;
    point = point << 6 | (text[at] & 0x3f);
  }
  bool is_surrogate = point >= 0xd800 && point <= 0xdfff;
  bool is_valid = text[0] >= 0xc2 && text[0] <= 0xf4 && point <= 0x10ffff && !is_surrogate;
  return is_valid && point >= least[size] ? size : 0;
}

static void put_string(writer* out, const char* text) {
  put_plain(out, "\"");
  while (*text) {
    unsigned char byte = (unsigned char)*text;
    size_t size = character_size((const unsigned char*)text);
    if (byte < 0x20) {
      char escape[8];
      snprintf(escape, sizeof escape, "\\u%04x", byte);
      put_plain(out, escape);
    } else {
      if (byte == '"' || byte == '\\') put_plain(out, "\\");
      if (size)
        put(out, text, size);
      else
        put_plain(out, "?");
    }
    text += size ? size : 1;
  }
  put_plain(out, "\"");
}

static void put_detail(writer* out, const cow_detail* detail) {
  put_string(out, detail->key);
  put_plain(out, ": ");
  if (detail->text) {
    put_string(out, detail->text);
  } else {
    char digits[24];
    const char* sign = detail->is_negative ? "-" : "";
    snprintf(digits, sizeof digits, "%s%" PRIu64, sign, detail->number);
    put_plain(out, digits);
  }
}

static const char* name_of(cow_reason reason) {
  static const char* const names[] = {
#define REASON_NAME(name, keys, meaning) #name,
      COW_MLX_REASONS(REASON_NAME)
#undef REASON_NAME
  };
  return names[reason];
}

void cow_details_write(char* buffer, size_t capacity, const char* operation, cow_reason reason,
                       const cow_detail* details) {
  static const char end[] = "}}";
  writer out = {buffer, capacity - sizeof end, 0, false};
  put_plain(&out, "{\"operation\": ");
  put_string(&out, operation);
  put_plain(&out, ", \"reason\": ");
  put_string(&out, name_of(reason));
  put_plain(&out, ", \"details\": {");
  size_t empty = out.length;
  for (const cow_detail* detail = details; detail && detail->key; detail++) {
    writer before = out;
    if (out.length > empty) put_plain(&out, ", ");
    put_detail(&out, detail);
    if (out.full) out = before;
  }
  memcpy(buffer + out.length, end, sizeof end);
}

/* ---------------------------------------------------------------- Failures */

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

cow_mlx_status cow_error_range(const char* operation, const char* argument, int64_t value,
                               const char* accepted) {
  return cow_error(COW_MLX_EINVAL, operation, COW_REASON_out_of_range,
                   DETAILS(TEXT_DETAIL("argument", argument), INT_DETAIL("value", value),
                           TEXT_DETAIL("accepted", accepted)),
                   "%s is %lld, must be %s", argument, (long long)value, accepted);
}

cow_mlx_status cow_error_size(const char* operation, const char* argument, size_t value,
                              const char* accepted) {
  return cow_error(COW_MLX_EINVAL, operation, COW_REASON_out_of_range,
                   DETAILS(TEXT_DETAIL("argument", argument), SIZE_DETAIL("value", value),
                           TEXT_DETAIL("accepted", accepted)),
                   "%s is %zu, must be %s", argument, value, accepted);
}

cow_mlx_status cow_error_handle(const char* operation, const char* kind, int64_t handle) {
  return cow_error(COW_MLX_EHANDLE, operation, COW_REASON_unknown_handle,
                   DETAILS(INT_DETAIL("handle", handle), TEXT_DETAIL("kind", kind)),
                   "%lld is not an open %s", (long long)handle, kind);
}

cow_mlx_status cow_error_not_running(const char* operation) {
  return cow_error(COW_MLX_ESTATE, operation, COW_REASON_not_running, NULL,
                   "the runtime is not running; call runtime_start first");
}

const char* cow_mlx_error_message(void) { return failure.message; }

/* Leaves the failure as it is, so that a call with a larger buffer finds it. */
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
