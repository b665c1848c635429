#include "hand_calls.h"
#include "library.h"

static ERL_NIF_TERM opened(cow_frame* frame, cow_mlx_status status, cow_mlx_media media) {
  ERL_NIF_TERM term = status ? 0 : cow_object_term(frame->env, COW_KIND_MEDIA, media);
  return cow_result(frame->env, status, term);
}

/* media_from_pixels(Binary, Width, Height, Channels) */
ERL_NIF_TERM cow_make_media_from_pixels(cow_frame* frame) {
  cow_mlx_text pixels = cow_take_text(frame, 0);
  int32_t width = (int32_t)cow_take_int(frame, 1, INT32_MIN, INT32_MAX);
  int32_t height = (int32_t)cow_take_int(frame, 2, INT32_MIN, INT32_MAX);
  int32_t channels = (int32_t)cow_take_int(frame, 3, INT32_MIN, INT32_MAX);
  size_t row = 0;
  if (width > 0 && height > 0 && channels > 0) {
    row = (size_t)width * (size_t)channels;
    if (pixels.length / (size_t)height < row) {
      cow_refuse(frame, 0, "a binary of width * height * channels bytes");
    }
  }
  if (frame->refused) return cow_refusal(frame);
  cow_mlx_media media = 0;
  cow_mlx_status status = api.media_from_pixels(pixels.data, width, height, channels, row, &media);
  return opened(frame, status, media);
}

/* media_from_file(Binary) */
ERL_NIF_TERM cow_make_media_from_file(cow_frame* frame) {
  cow_mlx_text bytes = cow_take_text(frame, 0);
  if (frame->refused) return cow_refusal(frame);
  cow_mlx_media media = 0;
  cow_mlx_status status = api.media_from_file(bytes.data, bytes.length, &media);
  return opened(frame, status, media);
}
