/* Images for models that see.
 * Part of cow_mlx.h; include that. */
#ifndef COW_MLX_MEDIA_H
#define COW_MLX_MEDIA_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- Images */
/* An image is a value: nothing changes it. A message of a chat names it in a content part:
 * {"type": "image", "media": 7}. See cow_mlx_model_chat_prompt(). */

/** The maximum number of pixels of an image: 64 megapixels. */
#define COW_MLX_MAX_PIXELS 67108864

/**
 * Create an image from pixels, which are copied on the calling thread.
 *
 * Rows lie one after the other, the top one first, each of width * channels bytes. Models see an
 * image of 4 channels on white.
 *
 * @param pixels    (height - 1) * stride + width * channels bytes
 * @param width     pixels of a row, at least 1
 * @param height    rows, at least 1; width * height is at most COW_MLX_MAX_PIXELS
 * @param channels  1 (grey), 3 (RGB) or 4 (RGBA)
 * @param stride    bytes from a row to the next one, at least width * channels
 * @param out       receives the handle
 * @retval COW_MLX_EINVAL  also: a size, channels or stride out of range
 * @retval COW_MLX_ENOMEM  too little memory, or runtime_params.memory_limit is reached; or 65,535
 *                         images are open
 */
COW_MLX_API cow_mlx_status cow_mlx_media_from_pixels(const void* pixels, int32_t width,
                                                     int32_t height, int32_t channels,
                                                     size_t stride, cow_mlx_media* out);

/**
 * Create an image from a file in memory: PNG, JPEG, WebP, uncompressed BMP or GIF.
 *
 * The format and the size are read before any pixel is. The image is turned as its EXIF orientation
 * says. An animation gives its first frame. CMYK and palettes become RGB; where a colour is
 * transparent, these and grey become RGBA; 1 and 16 bits become 8.
 *
 * @param bytes  the whole file; copied
 * @param size   of bytes, 1 to 2147483647
 * @param out    receives the handle
 * @retval COW_MLX_EINVAL        also: more than COW_MLX_MAX_PIXELS
 * @retval COW_MLX_EFORMAT       none of these formats, BMP with RLE compression, JPEG of more than
 *                               100 scans, or a damaged file
 * @retval COW_MLX_ENOENT        the library's Python lacks Pillow: install cowmlx[images] there
 * @retval COW_MLX_ENOMEM        as for cow_mlx_media_from_pixels()
 */
COW_MLX_API cow_mlx_status cow_mlx_media_from_file(const void* bytes, size_t size,
                                                   cow_mlx_media* out);

/**
 * Describe an image as a JSON object: "width", "height" and "channels", and "hash", 32 hexadecimal
 * digits that are equal for equal pixels of equal size.
 *
 * @retval COW_MLX_EBUFFER  capacity is too small; *length is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_media_info(cow_mlx_media media, char* buffer, size_t capacity,
                                              size_t* length);

/** Free the handle. Prompts and contexts that have the image keep what they need of it. */
COW_MLX_API cow_mlx_status cow_mlx_media_free(cow_mlx_media media);

/**
 * Compute how many tokens an image of a size takes in a prompt of a model, those around it
 * included.
 *
 * @param width   of the image, at least 1
 * @param height  of the image, at least 1; width * height is at most COW_MLX_MAX_PIXELS
 * @param detail  0: as the model's folder says. Other values are COW_MLX_EINVAL
 * @param tokens  receives the number
 * @retval COW_MLX_EINVAL        a side is longer than 65,535 pixels, or the image is too thin for
 *                               the model
 * @retval COW_MLX_EUNSUPPORTED  the model takes no images: "images" of cow_mlx_model_info() says
 *                               why
 */
COW_MLX_API cow_mlx_status cow_mlx_model_media_tokens(cow_mlx_model model, int32_t width,
                                                      int32_t height, int32_t detail,
                                                      int32_t* tokens);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_MEDIA_H */
