/* Images. See cow_mlx.hpp. */
#ifndef COW_MLX_MEDIA_HPP
#define COW_MLX_MEDIA_HPP

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base.hpp"

namespace cowmlx {

/** An image: a value, which nothing changes. */
class Media {
 public:
  /** From pixels: rows of width * channels bytes, stride bytes apart. Copied. */
  static Media from_pixels(const void* pixels, std::int32_t width, std::int32_t height,
                           std::int32_t channels, std::size_t stride) {
    cow_mlx_media media = 0;
    detail::check(cow_mlx_media_from_pixels(pixels, width, height, channels, stride, &media));
    return Media(media);
  }

  /** From a file: PNG, JPEG, WebP, BMP or GIF. Copied. */
  static Media from_file(std::string_view bytes) {
    cow_mlx_media media = 0;
    const char* data = bytes.data() ? bytes.data() : "";
    detail::check(cow_mlx_media_from_file(data, bytes.size(), &media));
    return Media(media);
  }

  /** Its width, height, channels and hash: a JSON object. */
  std::string info() const {
    return detail::fill<std::string>(
        256, [&](char* buffer, std::size_t capacity, std::size_t* length) {
          return cow_mlx_media_info(handle(), buffer, capacity, length);
        });
  }

  cow_mlx_media handle() const noexcept { return handle_.get(); }

 private:
  explicit Media(cow_mlx_media media) : handle_(media) {}

  detail::Handle<cow_mlx_media_free> handle_;
};

}  // namespace cowmlx

#endif /* COW_MLX_MEDIA_HPP */
