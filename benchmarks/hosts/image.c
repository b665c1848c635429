/*
 * A host that is shown images: image MODEL
 *
 * Prints "ready", then answers lines "KIND COUNT SEED WIDTH HEIGHT BEFORE TOKEN..." (picture.h).
 * "image" shows an image that the model has not seen, generates COUNT tokens, and answers "FIRST
 * REST CPU TOKEN...", as generate.c. "beside" generates COUNT tokens of a text meanwhile, and
 * answers "STEP LONGEST": the median and the longest gap between two of them, in seconds.
 */
#include "host.h"
#include "picture.h"

static void show(cow_mlx_model model, cow_mlx_context context, const task* asked, generated* out) {
  static int32_t prompt[MAX_TOKENS];
  unsigned char* pixels = drawn(asked);
  int32_t width = asked->prompt[WIDTH], height = asked->prompt[HEIGHT];
  double begun = now();
  cow_mlx_media media;
  check(cow_mlx_media_from_pixels(pixels, width, height, 3, (size_t)width * 3, &media));
  char messages[200];
  snprintf(messages, sizeof messages,
           "[{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"media\": %d}]}]", media);
  size_t length;
  check(cow_mlx_model_chat_prompt(model, messages, COW_MLX_NUL, NULL, prompt, MAX_TOKENS, &length));
  cow_mlx_generation_params params = greedy(asked->max_tokens);
  check(cow_mlx_context_reset(context));
  generate_tokens(context, prompt, length, &params, begun, out);
  check(cow_mlx_media_free(media));
  free(pixels);
}

typedef struct writing {
  cow_mlx_context context;
  size_t count;
  gate* at;
  double times[MAX_TOKENS];
} writing;

static void* write_text(void* data) {
  writing* own = data;
  const int32_t prompt[] = {20, 21, 22, 23};
  cow_mlx_generation_params params = greedy(own->count);
  pass(own->at);
  own->count = decode(own->context, prompt, 4, &params, own->times);
  return NULL;
}

static void beside(cow_mlx_model model, cow_mlx_context context, const task* asked) {
  static generated shown;
  static double gaps[MAX_TOKENS];
  gate at = {.lock = PTHREAD_MUTEX_INITIALIZER, .open = PTHREAD_COND_INITIALIZER, .missing = 2};
  static writing own;
  own = (writing){.context = open_context(model, false), .count = asked->max_tokens, .at = &at};
  task one = *asked;
  one.max_tokens = 1;
  pthread_t thread;
  if (pthread_create(&thread, NULL, write_text, &own)) exit(1);
  pass(&at);
  show(model, context, &one, &shown);
  pthread_join(thread, NULL);
  size_t count = sorted_gaps(own.times, own.count, gaps);
  printf("%.6f %.6f\n", gaps[count / 2], gaps[count - 1]);
  check(cow_mlx_context_free(own.context));
}

int main(int argc, char** argv) {
  static task asked;
  static generated out;
  if (argc != 2) return 2;
  cow_mlx_model model = start(argv[1]);
  cow_mlx_context context = open_context(model, false);
  ready();
  while (read_task(&asked)) {
    if (asked.count < FIRST_TOKEN) return 2;
    if (strcmp(asked.kind, "beside") == 0) {
      beside(model, context, &asked);
    } else {
      double spent = processor_time();
      show(model, context, &asked, &out);
      print_generated(&out, processor_time() - spent);
    }
    fflush(stdout);
  }
  check(cow_mlx_runtime_stop());
  return 0;
}
