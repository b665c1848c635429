/* What is known of a failure, as a JSON object. */
#ifndef COW_DETAILS_H
#define COW_DETAILS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cow_mlx.h"

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

/* Write {"operation": ..., "reason": ..., "details": {...}} with a terminator. A detail that does
 * not fit is left out; bytes that are no UTF-8 become "?". */
void cow_details_write(char* buffer, size_t capacity, const char* operation, cow_reason reason,
                       const cow_detail* details);

#endif
