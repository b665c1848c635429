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

cow_mlx_status cow_tensor_null(const char* operation, const char* name, const char* member) {
  char argument[MAX_NAME];
  snprintf(argument, sizeof argument, "%s.%s", name, member);
  return cow_error(COW_MLX_EINVAL, operation, COW_REASON_null_argument,
                   DETAILS(TEXT_DETAIL("argument", argument)), "%s is NULL", argument);
}

cow_mlx_status cow_type_read(const char* operation, const char* name, int32_t dtype, int32_t rank,
                             const int64_t* shape, cow_array_type* out) {
  char argument[MAX_NAME];
  size_t bytes = cow_dtype_bytes(dtype);
  if (!bytes) {
    snprintf(argument, sizeof argument, "%s.dtype", name);
    return cow_error_range(operation, argument, dtype, "one of COW_MLX_DTYPES, 1 to 14");
  }
  if (rank < 0 || rank > COW_MLX_MAX_RANK) {
    snprintf(argument, sizeof argument, "%s.rank", name);
    return cow_error_range(operation, argument, rank, "0 to 8");
  }
  if (rank > 0 && !shape) return cow_tensor_null(operation, name, "shape");
  *out = (cow_array_type){.dtype = dtype, .rank = rank};
  bool is_too_large = false;
  for (int32_t i = 0; i < rank; i++) {
    if (shape[i] < 0 || shape[i] > INT32_MAX) {
      snprintf(argument, sizeof argument, "%s.shape[%d]", name, (int)i);
      return cow_error_range(operation, argument, shape[i], "0 to 2147483647");
    }
    /* Also of shapes with a 0: libraries below multiply in any order. */
    size_t side = shape[i] ? (size_t)shape[i] : 1;
    is_too_large = is_too_large || bytes > (size_t)INT64_MAX / side;
    if (!is_too_large) bytes *= side;
    out->shape[i] = shape[i];
  }
  if (is_too_large) {
    char text[COW_SHAPE_TEXT];
    cow_shape_text(shape, rank, text);
    snprintf(argument, sizeof argument, "%s.shape", name);
    return cow_error(COW_MLX_EINVAL, operation, COW_REASON_out_of_range,
                     DETAILS(TEXT_DETAIL("argument", argument), TEXT_DETAIL("value", text),
                             TEXT_DETAIL("accepted", "fewer than 2^63 bytes")),
                     "%s is %s, must have fewer than 2^63 bytes", argument, text);
  }
  cow_type_complete(out);
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
    if (type->shape[i] == 1) continue; /* any stride, since no step is taken */
    if (__builtin_mul_overflow(strides[i], item, &in_bytes[i])) return false;
    if (__builtin_mul_overflow(type->shape[i] - 1, in_bytes[i], &reach)) return false;
    int64_t* side = reach < 0 ? low : high;
    if (__builtin_add_overflow(*side, reach, side)) return false;
  }
  return true;
}

cow_mlx_status cow_tensor_place(const char* operation, const char* name, const cow_array_type* type,
                                void* data, uint64_t offset, const int64_t* strides,
                                cow_tensor* out) {
  *out = (cow_tensor){.type = *type};
  if (!type->bytes) return COW_MLX_OK;
  if (!data) return cow_tensor_null(operation, name, "data");
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

cow_mlx_status cow_tensor_check(const char* operation, const char* name, const cow_mlx_tensor* host,
                                cow_tensor* out) {
  cow_mlx_tensor given = {.struct_size = sizeof given};
  TRY(cow_params_check_size(operation, name, "tensor", host));
  TRY(cow_params_read(operation, name, host, &given, sizeof given));
  cow_array_type type;
  TRY(cow_type_read(operation, name, given.dtype, given.rank, given.shape, &type));
  *out = (cow_tensor){.type = type};
  if (!type.bytes) return COW_MLX_OK;
  if (!given.data) return cow_tensor_null(operation, name, "data");
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

/* Drop dimensions of size 1, and join neighbors that are contiguous on both sides. */
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
