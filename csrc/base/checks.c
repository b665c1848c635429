#include "base/checks.h"

#include <stdio.h>

cow_mlx_status cow_check_texts(const char* operation, const char* name, const cow_mlx_text* texts,
                               size_t count) {
  for (size_t i = 0; i < count; i++) {
    char argument[64];
    snprintf(argument, sizeof argument, "%s[%zu]", name, i);
    if (!texts[i].data && texts[i].length > 0) {
      return cow_error(COW_MLX_EINVAL, operation, COW_REASON_null_argument,
                       DETAILS(TEXT_DETAIL("argument", argument)),
                       "%s.data is NULL, but its length is not 0", argument);
    }
    if (texts[i].length > MAX_BYTES && texts[i].length != COW_MLX_NUL) {
      return cow_error(
          COW_MLX_EINVAL, operation, COW_REASON_out_of_range,
          DETAILS(TEXT_DETAIL("argument", argument), SIZE_DETAIL("value", texts[i].length),
                  TEXT_DETAIL("accepted", ACCEPTED_BYTES)),
          "%s.length is %zu, must be %s", argument, texts[i].length, ACCEPTED_BYTES);
    }
  }
  return COW_MLX_OK;
}

/* Every such struct starts with its size. */
static size_t size_of(const void* host) {
  size_t size;
  memcpy(&size, host, sizeof size);
  return size;
}

static bool is_zero(const unsigned char* bytes, size_t count) {
  while (count > 0 && bytes[count - 1] == 0) count--;
  return count == 0;
}

/* No struct comes near this size: a larger one is garbage, not a newer header. */
enum { MAX_STRUCT = 65536 };

static bool is_plausible(size_t given) { return given >= sizeof given && given <= MAX_STRUCT; }

static cow_mlx_status bad_size(const char* operation, const char* name, size_t given,
                               const char* accepted) {
  char argument[64];
  snprintf(argument, sizeof argument, "%s.struct_size", name);
  return cow_error_size(operation, argument, given, accepted);
}

cow_mlx_status cow_params_check_size(const char* operation, const char* name, const char* noun,
                                     const void* host) {
  size_t given = size_of(host);
  if (is_plausible(given)) return COW_MLX_OK;
  char accepted[64];
  snprintf(accepted, sizeof accepted, "sizeof(cow_mlx_%s)", noun);
  return bad_size(operation, name, given, accepted);
}

cow_mlx_status cow_params_read(const char* operation, const char* name, const void* host, void* out,
                               size_t size) {
  if (!host) return COW_MLX_OK;
  size_t given = size_of(host);
  if (!is_plausible(given)) {
    char accepted[64];
    snprintf(accepted, sizeof accepted, "what cow_mlx_%s_init sets", name);
    return bad_size(operation, name, given, accepted);
  }
  if (given > size && !is_zero((const unsigned char*)host + size, given - size)) {
    return cow_error(COW_MLX_EINVAL, operation, COW_REASON_unknown_option,
                     DETAILS(TEXT_DETAIL("argument", name), SIZE_DETAIL("value", given)),
                     "%s has %zu bytes with options that this library, whose struct has %zu, does "
                     "not know",
                     name, given, size);
  }
  memcpy(out, host, given < size ? given : size);
  memcpy(out, &size, sizeof size);
  return COW_MLX_OK;
}

void cow_params_write(void* host, const void* from, size_t size) {
  size_t given = size_of(host);
  memcpy((unsigned char*)host + sizeof given, (const unsigned char*)from + sizeof given,
         (given < size ? given : size) - sizeof given);
}

void cow_params_init(void* host, size_t host_size, const void* defaults, size_t size) {
  if (!host || host_size < sizeof host_size || host_size > MAX_STRUCT) return;
  memset(host, 0, host_size);
  memcpy(host, defaults, host_size < size ? host_size : size);
  memcpy(host, &host_size, sizeof host_size);
}
