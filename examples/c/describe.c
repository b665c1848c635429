/*
 * Ask a model that sees about an image: describe MODEL [FILE [QUESTION]]
 * FILE is a PNG, JPEG, WebP, BMP or GIF. Without one, the program draws a picture.
 */
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 192 };

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

/* A red circle at the top left and a blue square at the bottom right, on white. */
static cow_mlx_media drawn(void) {
  static unsigned char pixels[SIDE][SIDE][3];
  const unsigned char red[3] = {214, 36, 32}, blue[3] = {30, 84, 216};
  memset(pixels, 255, sizeof pixels);
  for (int y = 0; y < SIDE; y++) {
    for (int x = 0; x < SIDE; x++) {
      const int right = x - SIDE / 6, down = y - SIDE / 6;
      if (right * right + down * down < 22 * 22) memcpy(pixels[y][x], red, 3);
      if (abs(x - SIDE * 5 / 6) < 19 && abs(y - SIDE * 5 / 6) < 19) memcpy(pixels[y][x], blue, 3);
    }
  }
  cow_mlx_media image;
  check(cow_mlx_media_from_pixels(pixels, SIDE, SIDE, 3, sizeof pixels[0], &image));
  return image;
}

static cow_mlx_media opened(const char* path) {
  FILE* file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) perror(path), exit(1);
  const long size = ftell(file);
  unsigned char* bytes = size > 0 ? malloc((size_t)size) : NULL;
  rewind(file);
  if (!bytes || fread(bytes, 1, (size_t)size, file) != (size_t)size) {
    fprintf(stderr, "%s: cannot be read\n", path);
    exit(1);
  }
  fclose(file);
  cow_mlx_media image;
  check(cow_mlx_media_from_file(bytes, (size_t)size, &image));
  free(bytes);
  return image;
}

/* Messages with one question: the image, and a text as a JSON string. */
static char* asked(cow_mlx_media image, const char* question) {
  char* messages = malloc(128 + 6 * strlen(question));
  if (!messages) abort();
  char* end = messages;
  end += sprintf(end,
                 "[{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"media\": %d}, "
                 "{\"type\": \"text\", \"text\": \"",
                 image);
  for (; *question; question++) {
    if (*question == '"' || *question == '\\' || (unsigned char)*question < ' ') {
      end += sprintf(end, "\\u%04x", (unsigned char)*question);
    } else {
      *end++ = *question;
    }
  }
  strcpy(end, "\"}]}]");
  return messages;
}

static bool show(const cow_mlx_event* event, void* user_data) {
  (void)user_data;
  if (event->kind == COW_MLX_EVENT_TEXT) fwrite(event->text, 1, event->length, stdout);
  fflush(stdout);
  return true;
}

int main(int argc, char** argv) {
  if (argc < 2) return fprintf(stderr, "describe MODEL [FILE [QUESTION]]\n"), 2;
  cow_mlx_model model;
  cow_mlx_context context;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_model_load(argv[1], NULL, &model));
  check(cow_mlx_context_create(model, NULL, &context));

  const cow_mlx_media image = argc > 2 ? opened(argv[2]) : drawn();
  char* messages = asked(image, argc > 3 ? argv[3] : "Describe the picture.");
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.temperature = 0; /* the likeliest words */
  check(cow_mlx_context_chat(context, messages, COW_MLX_NUL, &params, NULL, show, NULL, NULL));
  printf("\n");

  free(messages);
  check(cow_mlx_media_free(image));
  check(cow_mlx_runtime_stop());
  return 0;
}
