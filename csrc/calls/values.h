/* The values that calls of programs and trainings are given. */
#ifndef COW_VALUES_H
#define COW_VALUES_H

#include "calls/array_calls.h"

/* A program has no more inputs, parameters and constants, and no more nodes. */
enum { MAX_VALUES = 1 << 16 };

enum { COW_VALUE_TEXT = 40 };

#define REQUIRE_VALUES(values, count)                                             \
  if (!(values) && (count) > 0)                                                   \
    INVALID_NULL(#values, "%s is NULL, but %s is %zu", #values, #count, (count)); \
  if ((count) > MAX_VALUES) INVALID_SIZE(#count, count, "at most 65536")

/* "inputs[3].host" */
const char* cow_values_name(const char* list, size_t index, const char* member,
                            char text[COW_VALUE_TEXT]);

cow_mlx_status cow_values_refuse(const char* operation, const char* list, size_t index,
                                 const char* accepted);

/* Hold the array of an input, or one of what the host's memory has, which has to stay as it is
 * until the call ends. */
cow_mlx_status cow_values_take(const char* operation, const cow_mlx_value* inputs, size_t index,
                               cow_array** out);

#endif
