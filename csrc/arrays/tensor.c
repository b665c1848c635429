#include "arrays/tensor.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/checks.h"

size_t cow_dtype_bytes(int32_t dtype) {
  static const unsigned char bytes[] = {
#define DTYPE_BYTES(name, value, bytes) [value] = bytes,
      COW_MLX_DTYPES(DTYPE_BYTES)
#undef DTYPE_BYTES
  };
  return dtype > 0 && (size_t)dtype < sizeof bytes ? bytes[dtype] : 0;
}

const char* cow_dtype_text(int32_t dtype, char text[COW_DTYPE_TEXT]) {
  static const char* const names[] = {
#define DTYPE_NAME(name, value, bytes) [value] = #name,
      COW_MLX_DTYPES(DTYPE_NAME)
#undef DTYPE_NAME
  };
  snprintf(text, COW_DTYPE_TEXT, "%s", cow_dtype_bytes(dtype) ? names[dtype] : "unknown");
  for (char* c = text; *c; c++) *c = (char)tolower((unsigned char)*c);
  return text;
}

const char* cow_shape_text(const int64_t* shape, int32_t rank, char text[COW_SHAPE_TEXT]) {
  int length = snprintf(text, COW_SHAPE_TEXT, "[");
  for (int32_t i = 0; i < rank; i++) {
    length += snprintf(text + length, COW_SHAPE_TEXT - (size_t)length, "%s%lld", i ? ", " : "",
                       (long long)shape[i]);
  }
  snprintf(text + length, COW_SHAPE_TEXT - (size_t)length, "]");
  return text;
}

/* ------------------------------------------------------------------ Checks */

enum { MAX_NAME = 64 };

static cow_mlx_status bad_value(const char* operation, const char* argument, int64_t value,
                                const char* accepted) {
  return cow_error(COW_MLX_EINVAL, operation, COW_REASON_out_of_range,
                   DETAILS(TEXT_DETAIL("argument", argument), INT_DETAIL("value", value),
                           TEXT_DETAIL("accepted", accepted)),
                   "%s is %lld, must be %s", argument, (long long)value, accepted);
}

cow_mlx_status cow_tensor_null(const char* operation, const char* name, const char* member) {
  char argument[MAX_NAME];
  snprintf(argument, sizeof argument, "%s.%s", name, member);
  return cow_error(COW_MLX_EINVAL, operation, COW_REASON_null_argument,
                   DETAILS(TEXT_DETAIL("argument", argument)), "%s is NULL", argument);
}

cow_mlx_status cow_type_check(const char* operation, const char* name, cow_array_type* type) {
  char argument[MAX_NAME];
  size_t bytes = cow_dtype_bytes(type->dtype);
  if (!bytes) {
    snprintf(argument, sizeof argument, "%s.dtype", name);
    return bad_value(operation, argument, type->dtype, "one of COW_MLX_DTYPES, 1 to 14");
  }
  if (type->rank < 0 || type->rank > COW_MLX_MAX_RANK) {
    snprintf(argument, sizeof argument, "%s.rank", name);
    return bad_value(operation, argument, type->rank, "0 to 8");
  }
  bool is_too_large = false;
  for (int32_t i = 0; i < type->rank; i++) {
    if (type->shape[i] < 0 || type->shape[i] > INT32_MAX) {
      snprintf(argument, sizeof argument, "%s.shape[%d]", name, (int)i);
      return bad_value(operation, argument, type->shape[i], "0 to 2147483647");
    }
    /* Without the 0 too: libraries below multiply in any order. */
    size_t side = type->shape[i] ? (size_t)type->shape[i] : 1;
    is_too_large = is_too_large || bytes > (size_t)INT64_MAX / side;
    if (!is_too_large) bytes *= side;
  }
  if (is_too_large) {
    char shape[COW_SHAPE_TEXT];
    cow_shape_text(type->shape, type->rank, shape);
    snprintf(argument, sizeof argument, "%s.shape", name);
    return cow_error(COW_MLX_EINVAL, operation, COW_REASON_out_of_range,
                     DETAILS(TEXT_DETAIL("argument", argument), TEXT_DETAIL("value", shape),
                             TEXT_DETAIL("accepted", "fewer than 2^63 bytes")),
                     "%s is %s, must have fewer than 2^63 bytes", argument, shape);
  }
  cow_type_complete(type);
  return COW_MLX_OK;
}

void cow_type_complete(cow_array_type* type) {
  int64_t step = 1;
  bool is_empty = false;
  for (int32_t i = type->rank; i-- > 0;) {
    type->strides[i] = step;
    step *= type->shape[i] ? type->shape[i] : 1;
    is_empty = is_empty || !type->shape[i];
  }
  type->bytes = is_empty ? 0 : (size_t)step * cow_dtype_bytes(type->dtype);
}

static cow_mlx_status overflowing(const char* operation, const char* name) {
  return cow_error(COW_MLX_EINVAL, operation, COW_REASON_out_of_bounds,
                   DETAILS(TEXT_DETAIL("argument", name)),
                   "the strides of %s reach further than memory can", name);
}

/* Strides in bytes, and which bytes the elements take, from the one at index 0: `low` is never
 * above 0, `high` is one past the last. The stride of a dimension of 1 becomes 0. False if that
 * overflows. */
static bool measure(const cow_array_type* type, const int64_t* strides, int64_t* in_bytes,
                    int64_t* low, int64_t* high) {
  int64_t item = (int64_t)cow_dtype_bytes(type->dtype);
  if (!strides) strides = type->strides;
  *low = 0;
  *high = item;
  for (int32_t i = 0; i < type->rank; i++) {
    int64_t reach;
    in_bytes[i] = 0;
    if (type->shape[i] == 1) continue; /* a step that is never taken, so it may be any */
    if (__builtin_mul_overflow(strides[i], item, &in_bytes[i])) return false;
    if (__builtin_mul_overflow(type->shape[i] - 1, in_bytes[i], &reach)) return false;
    int64_t* side = reach < 0 ? low : high;
    if (__builtin_add_overflow(*side, reach, side)) return false;
  }
  return true;
}

/* What there is to place if there are no elements. */
static void place_nothing(const cow_array_type* type, cow_tensor* out) {
  *out = (cow_tensor){.type = *type};
}

cow_mlx_status cow_tensor_place(const char* operation, const char* name, const cow_array_type* type,
                                void* data, uint64_t offset, const int64_t* strides,
                                cow_tensor* out) {
  if (!type->bytes) {
    place_nothing(type, out);
    return COW_MLX_OK;
  }
  if (!data) return cow_tensor_null(operation, name, "data");
  *out = (cow_tensor){.type = *type};
  int64_t low, high;
  uintptr_t address = (uintptr_t)data;
  if (!measure(type, strides, out->strides, &low, &high) || offset > UINTPTR_MAX - address ||
      (uintptr_t)0 - (uintptr_t)low > address + offset ||
      (uintptr_t)high > UINTPTR_MAX - (address + offset)) {
    return overflowing(operation, name);
  }
  out->first = (char*)data + offset;
  return COW_MLX_OK;
}

/* As much of the host's struct as it has; what a newer one has beyond this must be 0. */
static cow_mlx_status read_struct(const char* operation, const char* name,
                                  const cow_mlx_tensor* host, cow_mlx_tensor* out) {
  cow_mlx_status status = cow_params_check_size(operation, name, "tensor", host);
  if (status != COW_MLX_OK) return status;
  *out = (cow_mlx_tensor){.struct_size = sizeof *out};
  return cow_params_read(operation, name, host, out, sizeof *out);
}

cow_mlx_status cow_tensor_check(const char* operation, const char* name, const cow_mlx_tensor* host,
                                cow_tensor* out) {
  cow_mlx_tensor given;
  cow_mlx_status status = read_struct(operation, name, host, &given);
  if (status != COW_MLX_OK) return status;
  cow_array_type type = {.dtype = given.dtype, .rank = given.rank};
  if (type.rank > 0 && type.rank <= COW_MLX_MAX_RANK) {
    if (!given.shape) return cow_tensor_null(operation, name, "shape");
    memcpy(type.shape, given.shape, (size_t)type.rank * sizeof *type.shape);
  }
  if ((status = cow_type_check(operation, name, &type)) != COW_MLX_OK) return status;
  if (!type.bytes) {
    place_nothing(&type, out);
    return COW_MLX_OK;
  }
  if (!given.data) return cow_tensor_null(operation, name, "data");
  *out = (cow_tensor){.type = type};
  int64_t low, high;
  if (!measure(&type, given.strides, out->strides, &low, &high) ||
      given.bytes > (size_t)INT64_MAX || given.offset > (size_t)INT64_MAX ||
      __builtin_add_overflow(low, (int64_t)given.offset, &low) ||
      __builtin_add_overflow(high, (int64_t)given.offset, &high)) {
    return overflowing(operation, name);
  }
  if (low < 0 || high > (int64_t)given.bytes) {
    return cow_error(COW_MLX_EINVAL, operation, COW_REASON_out_of_bounds,
                     DETAILS(TEXT_DETAIL("argument", name), INT_DETAIL("first", low),
                             INT_DETAIL("last", high - 1), SIZE_DETAIL("limit", given.bytes)),
                     "the elements of %s take its bytes %lld to %lld, but it has %zu", name,
                     (long long)low, (long long)(high - 1), given.bytes);
  }
  out->first = (char*)given.data + given.offset;
  return COW_MLX_OK;
}

cow_mlx_status cow_tensor_check_apart(const char* operation, const char* name,
                                      const cow_tensor* tensor) {
  int64_t steps[COW_MLX_MAX_RANK], sides[COW_MLX_MAX_RANK];
  int count = 0;
  if (!tensor->first) return COW_MLX_OK;
  for (int32_t i = 0; i < tensor->type.rank; i++) {
    if (tensor->type.shape[i] < 2) continue;
    int64_t step = tensor->strides[i] < 0 ? -tensor->strides[i] : tensor->strides[i];
    int at = count++;
    for (; at > 0 && steps[at - 1] > step; at--) {
      steps[at] = steps[at - 1];
      sides[at] = sides[at - 1];
    }
    steps[at] = step;
    sides[at] = tensor->type.shape[i];
  }
  int64_t span = (int64_t)cow_dtype_bytes(tensor->type.dtype);
  for (int i = 0; i < count; i++) {
    if (steps[i] < span) {
      return cow_error(COW_MLX_EINVAL, operation, COW_REASON_overlapping,
                       DETAILS(TEXT_DETAIL("argument", name)),
                       "the strides of %s let elements share memory; each has to reach past all "
                       "that the smaller ones span",
                       name);
    }
    span += (sides[i] - 1) * steps[i];
  }
  return COW_MLX_OK;
}

/* ------------------------------------------------------------------ Copies */

/* Places of equal shape, the last dimension innermost. */
typedef struct copying {
  int rank;
  int64_t shape[COW_MLX_MAX_RANK];
  int64_t to[COW_MLX_MAX_RANK]; /* strides in bytes */
  int64_t from[COW_MLX_MAX_RANK];
} copying;

/* Leave out dimensions of size 1, and make one of two that lie behind each other on both sides. */
static copying simplified(const cow_array_type* type, const int64_t* to, const int64_t* from) {
  copying all = {.rank = 0};
  for (int32_t i = 0; i < type->rank; i++) {
    int64_t side = type->shape[i];
    if (side == 1) continue;
    int last = all.rank - 1;
    if (last >= 0 && all.to[last] == to[i] * side && all.from[last] == from[i] * side) {
      all.shape[last] *= side;
    } else {
      last = all.rank++;
      all.shape[last] = side;
    }
    all.to[last] = to[i];
    all.from[last] = from[i];
  }
  return all;
}

#define COPY_LINE(size) \
  for (int64_t i = 0; i < side; i++) memcpy(to + i * to_step, from + i * from_step, size)

static void copy_line(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t side,
                      int64_t item) {
  if (to_step == item && from_step == item) {
    memcpy(to, from, (size_t)(side * item));
    return;
  }
  switch (item) {
    case 1:
      COPY_LINE(1);
      break;
    case 2:
      COPY_LINE(2);
      break;
    case 4:
      COPY_LINE(4);
      break;
    default:
      COPY_LINE(8);
  }
}

static void copy_all(const cow_array_type* type, char* to, const int64_t* to_strides,
                     const char* from, const int64_t* from_strides) {
  int64_t item = (int64_t)cow_dtype_bytes(type->dtype);
  copying all = simplified(type, to_strides, from_strides);
  int inner = all.rank - 1;
  if (inner < 0) {
    memcpy(to, from, (size_t)item);
    return;
  }
  int64_t index[COW_MLX_MAX_RANK] = {0};
  int64_t to_at = 0, from_at = 0;
  for (;;) {
    copy_line(to + to_at, all.to[inner], from + from_at, all.from[inner], all.shape[inner], item);
    int axis = inner - 1;
    for (; axis >= 0; axis--) { /* the next line, as an odometer counts */
      if (++index[axis] < all.shape[axis]) break;
      to_at -= (all.shape[axis] - 1) * all.to[axis];
      from_at -= (all.shape[axis] - 1) * all.from[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
    to_at += all.to[axis];
    from_at += all.from[axis];
  }
}

static void pack(const cow_array_type* type, int64_t* strides) {
  int64_t item = (int64_t)cow_dtype_bytes(type->dtype);
  for (int32_t i = 0; i < type->rank; i++) strides[i] = type->strides[i] * item;
}

void cow_tensor_gather(const cow_tensor* from, void* to) {
  if (!from->first) return;
  int64_t packed[COW_MLX_MAX_RANK];
  pack(&from->type, packed);
  copy_all(&from->type, to, packed, from->first, from->strides);
  if (from->type.dtype != COW_MLX_BOOL) return;
  unsigned char* bytes = to;
  for (size_t i = 0; i < from->type.bytes; i++) bytes[i] = bytes[i] != 0;
}

void cow_tensor_scatter(const void* from, const cow_tensor* to) {
  if (!to->first) return;
  int64_t packed[COW_MLX_MAX_RANK];
  pack(&to->type, packed);
  copy_all(&to->type, to->first, to->strides, from, packed);
}
