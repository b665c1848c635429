package cowmlx;

import java.util.Map;

/** An image: a value, which nothing changes. */
public final class Media extends Handle {
  Media(int handle) {
    super("media", handle, number -> Api.get().cow_mlx_media_free((int) number));
  }

  /** Makes an image of pixels, row by row: 1 (grey), 3 (RGB) or 4 (RGBA) bytes each. Copied. */
  public static Media fromPixels(byte[] pixels, int width, int height, int channels) {
    long needed = (long) Math.max(width, 1) * Math.max(height, 1) * Math.max(channels, 1);
    if (Given.given(pixels, "pixels").length < needed) {
      throw new CowMlxException(Status.EINVAL, "pixels has " + pixels.length
          + " bytes, must have " + needed, "shape_mismatch", Map.of("argument", "pixels"));
    }
    return new Media(Arena.opened((arena, out) -> Api.get().cow_mlx_media_from_pixels(
        arena.copy(pixels), width, height, channels, (long) width * channels, out)));
  }

  /** Makes an image of a file: PNG, JPEG, WebP, BMP or GIF. */
  public static Media fromFile(byte[] bytes) {
    return new Media(Arena.opened((arena, out) -> Api.get().cow_mlx_media_from_file(
        arena.copy(Given.given(bytes, "bytes")), bytes.length, out)));
  }

  /** Describes the image: width, height, channels and hash. */
  public Map<String, Object> info() {
    return Json.object(Fill.text(256, (buffer, capacity, length) ->
        Api.get().cow_mlx_media_info(handle(), buffer, capacity, length)));
  }
}
