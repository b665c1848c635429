/* Images from a hostile host and hostile files, beside a model that sees: hostile_images MODEL
 * FILE... Every buffer is as large as it has to be and no larger. Each call returns a status, and a
 * failed one leaves its outputs alone. Prints how many files were images. */
#include "host.h"

enum { CAPACITY = 4096, CUTS = 24, CHANGES = 24, UNTOUCHED = -7 };

static cow_mlx_model model;
static cow_mlx_context context;
static size_t opened;
static uint32_t state = 1;

static uint32_t drawn(void) {
  state = state * 1664525U + 1013904223U;
  return state >> 8;
}

static void* exactly(const void* bytes, size_t size) {
  void* copy = malloc(size);
  EXPECT(copy);
  if (bytes) memcpy(copy, bytes, size);
  return copy;
}

/* Whether a failed call is one of a host's mistakes or of bad data, with a message. */
static void expect_refused(cow_mlx_status status) {
  EXPECT(status == COW_MLX_EINVAL || status == COW_MLX_EFORMAT || status == COW_MLX_EHANDLE);
  EXPECT(cow_mlx_error_message()[0]);
}

/* The ids of a message with an image; 0 if the model takes none of that size. */
static size_t prompt_of(cow_mlx_media media, int32_t* prompt) {
  char text[160];
  int size = snprintf(text, sizeof text,
                      "[{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"media\": %d}]}]",
                      media);
  char* messages = exactly(text, (size_t)size);
  size_t length = 0;
  cow_mlx_status status =
      cow_mlx_model_chat_prompt(model, messages, (size_t)size, NULL, prompt, CAPACITY, &length);
  free(messages);
  if (status != COW_MLX_OK) {
    expect_refused(status);
    return 0;
  }
  return length;
}

static cow_mlx_status begun(const int32_t* ids, size_t count) {
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = 1;
  int32_t* own = exactly(ids, count * sizeof *ids);
  EXPECT_OK(cow_mlx_context_reset(context));
  cow_mlx_status status = cow_mlx_context_begin(context, own, count, &params);
  free(own);
  return status;
}

/* Let the model see an image, and give back its ids in ways that they must not be. */
static void see(cow_mlx_media media) {
  static int32_t prompt[CAPACITY], wrong[CAPACITY];
  size_t length = prompt_of(media, prompt), first = 0;
  if (!length) return;
  EXPECT_OK(begun(prompt, length));
  char text[64];
  size_t written;
  cow_mlx_piece piece = {.struct_size = sizeof piece};
  cow_mlx_status status = cow_mlx_context_next(context, text, sizeof text, &written, &piece);
  EXPECT(status == COW_MLX_OK || status == COW_MLX_DONE);
  while (first < length && prompt[first] >= 0) first++;
  EXPECT(first < length);
  expect_refused(begun(prompt, first + 1)); /* the rest of the image is missing */
  memcpy(wrong, prompt, length * sizeof *prompt);
  wrong[first] = INT32_MIN;
  expect_refused(begun(wrong, length));
  wrong[first] = prompt[first] - 1;
  expect_refused(begun(wrong, length));
}

static void file(const unsigned char* bytes, size_t size, bool is_seen) {
  char about[8];
  size_t length;
  cow_mlx_media media = UNTOUCHED;
  unsigned char* own = exactly(bytes, size);
  cow_mlx_status status = cow_mlx_media_from_file(own, size, &media);
  free(own);
  if (status != COW_MLX_OK) {
    expect_refused(status);
    EXPECT(media == UNTOUCHED);
    return;
  }
  opened++;
  EXPECT(cow_mlx_media_info(media, about, sizeof about, &length) == COW_MLX_EBUFFER);
  if (is_seen) see(media);
  EXPECT_OK(cow_mlx_media_free(media));
}

/* A file as it is, cut off, and with other bytes. */
static void files(const char* path) {
  FILE* from = fopen(path, "rb");
  EXPECT(from && fseek(from, 0, SEEK_END) == 0);
  size_t size = (size_t)ftell(from);
  rewind(from);
  unsigned char *whole = exactly(NULL, size), *changed = exactly(NULL, size);
  EXPECT(fread(whole, 1, size, from) == size);
  fclose(from);
  file(whole, size, true);
  for (size_t cut = 0; cut < CUTS; cut++) file(whole, 1 + drawn() % size, false);
  for (size_t change = 0; change < CHANGES; change++) {
    memcpy(changed, whole, size);
    for (size_t at = 0; at < 1 + change % 8; at++) changed[drawn() % size] = (unsigned char)drawn();
    file(changed, size, change % 8 == 0);
  }
  free(whole);
  free(changed);
}

static void refuse_pixels(const void* pixels, int32_t width, int32_t height, int32_t channels,
                          size_t stride) {
  cow_mlx_media media = UNTOUCHED;
  EXPECT(cow_mlx_media_from_pixels(pixels, width, height, channels, stride, &media) ==
         COW_MLX_EINVAL);
  EXPECT(media == UNTOUCHED && cow_mlx_error_message()[0]);
}

static void wrong_pixels(void) {
  static const int32_t sizes[] = {0, -1, INT32_MIN, INT32_MAX};
  unsigned char* pixel = exactly("abcd", 4);
  for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
    refuse_pixels(pixel, sizes[at], 1, 1, 1);
    refuse_pixels(pixel, 1, sizes[at], 1, (size_t)INT64_MAX);
    refuse_pixels(pixel, sizes[at], sizes[at], 4, SIZE_MAX);
    refuse_pixels(pixel, 1, 1, sizes[at], 4);
  }
  refuse_pixels(pixel, 1, 1, 2, 2);
  refuse_pixels(pixel, 2, 2, 3, 5);
  refuse_pixels(pixel, 2, 2, 1, 0);
  refuse_pixels(pixel, 2, 2, 1, SIZE_MAX);
  refuse_pixels(pixel, 65536, 65536, 1, 65536);
  refuse_pixels(NULL, 1, 1, 1, 1);
  EXPECT(cow_mlx_media_from_pixels(pixel, 1, 1, 1, 1, NULL) == COW_MLX_EINVAL);
  cow_mlx_media media = UNTOUCHED;
  EXPECT(cow_mlx_media_from_file(NULL, 4, &media) == COW_MLX_EINVAL);
  EXPECT(cow_mlx_media_from_file(pixel, 0, &media) == COW_MLX_EINVAL);
  EXPECT(cow_mlx_media_from_file(pixel, SIZE_MAX, &media) == COW_MLX_EINVAL);
  EXPECT(cow_mlx_media_from_file(pixel, 4, NULL) == COW_MLX_EINVAL);
  EXPECT(media == UNTOUCHED);
  free(pixel);
}

/* Sizes that are images, however odd; behind the last row lies nothing. */
static void odd_pixels(void) {
  static const int32_t sizes[][2] = {{1, 1}, {1, 97}, {97, 1}, {1, 4000}, {33, 18}};
  static const int32_t channels[] = {1, 3, 4};
  for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
    int32_t width = sizes[at][0], height = sizes[at][1], own = channels[at % 3];
    size_t row = (size_t)width * (size_t)own, stride = row + at;
    size_t size = ((size_t)height - 1) * stride + row;
    unsigned char* pixels = exactly(NULL, size);
    for (size_t i = 0; i < size; i++) pixels[i] = (unsigned char)drawn();
    cow_mlx_media media;
    EXPECT_OK(cow_mlx_media_from_pixels(pixels, width, height, own, stride, &media));
    free(pixels);
    see(media);
    EXPECT_OK(cow_mlx_media_free(media));
    EXPECT(cow_mlx_media_free(media) == COW_MLX_EHANDLE);
    static int32_t prompt[CAPACITY];
    EXPECT(prompt_of(media, prompt) == 0);
  }
}

static void wrong_sizes_of_tokens(void) {
  static const int32_t sizes[] = {INT32_MIN, -1, 0, 1, 65535, 65536, INT32_MAX};
  enum { COUNT = sizeof sizes / sizeof *sizes };
  for (size_t at = 0; at < COUNT * COUNT; at++) {
    int32_t tokens = UNTOUCHED;
    cow_mlx_status status =
        cow_mlx_model_media_tokens(model, sizes[at / COUNT], sizes[at % COUNT], 0, &tokens);
    if (status == COW_MLX_OK) {
      EXPECT(tokens > 0);
    } else {
      EXPECT(status == COW_MLX_EINVAL && tokens == UNTOUCHED);
    }
  }
}

/* Parts of messages that are no images, some with NULs. */
static void wrong_messages(void) {
  static const char* const parts[] = {
      "{\"type\": \"image\"}",
      "{\"type\": \"image\", \"media\": -1}",
      "{\"type\": \"image\", \"media\": 1e999}",
      "{\"type\": \"image\", \"media\": \"1\"}",
      "{\"type\": \"image_url\", \"image_url\": {\"url\": \"file:///etc/passwd\"}}",
      "{\"type\": \"image_url\", \"image_url\": {\"url\": \"data:image/png;base64,\"}}",
      "{\"type\": \"image_url\", \"image_url\": {\"url\": \"data:image/png;base64,AAAA\\u0000\"}}",
      "{\"type\": \"image_url\", \"image_url\": {\"url\": \"data:;base64,iVBORw0KGgo=\"}}",
      "{\"type\": \"image_url\", \"image_url\": {\"url\": \"data:;base64,/9j/4AAQ\xff\"}}",
      "{\"type\": \"image_url\", \"image_url\": \"#\"}",
  };
  for (size_t at = 0; at < sizeof parts / sizeof *parts; at++) {
    char text[400];
    int size = snprintf(text, sizeof text, "[{\"role\": \"user\", \"content\": [%s]}]", parts[at]);
    for (int nul = -1; nul < size; nul += 37) {
      char* messages = exactly(text, (size_t)size);
      if (nul >= 0) messages[nul] = 0;
      int32_t token;
      size_t length = 7;
      expect_refused(
          cow_mlx_model_chat_prompt(model, messages, (size_t)size, NULL, &token, 1, &length));
      free(messages);
    }
  }
}

int main(int argc, char** argv) {
  EXPECT(argc > 2);
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  EXPECT_OK(cow_mlx_model_load(argv[1], NULL, &model));
  EXPECT_OK(cow_mlx_context_create(model, NULL, &context));
  wrong_pixels();
  odd_pixels();
  wrong_sizes_of_tokens();
  wrong_messages();
  for (int at = 2; at < argc; at++) files(argv[at]);
  printf("%zu\n", opened);
  EXPECT_OK(cow_mlx_runtime_stop());
  return 0;
}
