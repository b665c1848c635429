/* The calls that make an image: pixels and files are copied on the caller's thread. */
#include "boot/runtime.h"
#include "calls/array_calls.h"

static cow_mlx_status require_between(const char* operation, const char* name, int64_t value,
                                      int64_t most, const char* accepted) {
  if (value >= 1 && value <= most) return COW_MLX_OK;
  return cow_error_range(operation, name, value, accepted);
}

/* Check the size of an image. */
static cow_mlx_status check_size(const char* operation, int32_t width, int32_t height) {
  TRY(require_between(operation, "width", width, INT32_MAX, "at least 1"));
  TRY(require_between(operation, "height", height, INT32_MAX, "at least 1"));
  int64_t pixels = (int64_t)width * height;
  if (pixels <= COW_MLX_MAX_PIXELS) return COW_MLX_OK;
  return cow_error(COW_MLX_EINVAL, operation, COW_REASON_limit_exceeded,
                   DETAILS(TEXT_DETAIL("argument", "width"), INT_DETAIL("needed", pixels),
                           INT_DETAIL("limit", COW_MLX_MAX_PIXELS)),
                   "width is %d and height %d: %lld pixels, which can be at most %d", width, height,
                   (long long)pixels, COW_MLX_MAX_PIXELS);
}

/* Copy the host's bytes, and let the engine make an image of them. */
static cow_mlx_status make(const char* operation, cow_op op, const cow_mlx_tensor* from,
                           int32_t channels, cow_mlx_media* out) {
  cow_tensor tensor;
  TRY(cow_tensor_check(operation, channels ? "pixels" : "bytes", from, &tensor));
  cow_mlx_array array;
  TRY(cow_arrays_copy_in(operation, &tensor, &array));
  cow_media_args args = {.bytes = array, .channels = channels, .out = out};
  cow_request r = {.op = op, .args = &args};
  cow_mlx_status status = cow_runtime_call(&r, operation);
  cow_arrays_close(array);
  return status;
}

cow_mlx_status cow_mlx_media_from_pixels(const void* pixels, int32_t width, int32_t height,
                                         int32_t channels, size_t stride, cow_mlx_media* out) {
  BEGIN_CALL;
  REQUIRE(pixels);
  REQUIRE(out);
  TRY(check_size(OPERATION, width, height));
  if (channels != 1 && channels != 3 && channels != 4) {
    return cow_error_range(OPERATION, "channels", channels, "1, 3 or 4");
  }
  size_t row = (size_t)width * (size_t)channels, rows = (size_t)height;
  if (stride < row) INVALID_SIZE("stride", stride, "at least width * channels");
  if (stride > (size_t)INT64_MAX / rows) INVALID_SIZE("stride", stride, "what memory can hold");
  const int64_t shape[] = {height, width, channels};
  const int64_t strides[] = {(int64_t)stride, channels, 1};
  cow_mlx_tensor from = {.struct_size = sizeof from,
                         .data = (void*)(uintptr_t)pixels,
                         .bytes = (rows - 1) * stride + row,
                         .dtype = COW_MLX_UINT8,
                         .rank = 3,
                         .shape = shape,
                         .strides = strides};
  return make(OPERATION, COW_OP_MEDIA_FROM_PIXELS, &from, channels, out);
}

cow_mlx_status cow_mlx_media_from_file(const void* bytes, size_t size, cow_mlx_media* out) {
  BEGIN_CALL;
  REQUIRE(bytes);
  REQUIRE(out);
  if (size < 1 || size > INT32_MAX) INVALID_SIZE("size", size, "1 to 2147483647");
  const int64_t shape[] = {(int64_t)size};
  cow_mlx_tensor from = {.struct_size = sizeof from,
                         .data = (void*)(uintptr_t)bytes,
                         .bytes = size,
                         .dtype = COW_MLX_UINT8,
                         .rank = 1,
                         .shape = shape};
  return make(OPERATION, COW_OP_MEDIA_FROM_FILE, &from, 0, out);
}
