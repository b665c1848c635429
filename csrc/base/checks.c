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
