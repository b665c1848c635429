/*
 * One thread, one loop of poll(2): a model is loaded, and continues several texts at once, while
 * standard input is read: event_loop MODEL TEXT...
 * A line there, such as Enter, ends all of them. Nothing waits but poll() itself.
 */
#include <cow_mlx.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_STORIES = 16, MAX_TOKENS = 512 };

typedef struct story {
  cow_mlx_context context;
  char text[8192];
  size_t length;
  bool canceled;
} story;

static story stories[MAX_STORIES];
static struct pollfd watched[2 + MAX_STORIES]; /* standard input, the model, the stories */

static void check(cow_mlx_status status) {
  if (status >= COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

static void watch(struct pollfd* entry, int fd) {
  *entry = (struct pollfd){.fd = fd, .events = POLLIN};
}

/* Does not wait for the prompt. */
static void begin(story* it, struct pollfd* entry, cow_mlx_model model, const char* text) {
  int32_t tokens[MAX_TOKENS], fd;
  size_t count;
  check(cow_mlx_model_tokenize(model, text, COW_MLX_NUL, COW_MLX_ADD_SPECIAL, tokens, MAX_TOKENS,
                               &count));
  check(cow_mlx_context_create(model, NULL, &it->context));
  check(cow_mlx_context_begin_async(it->context, tokens, count, NULL));
  check(cow_mlx_context_wake_fd(it->context, &fd));
  watch(entry, fd);
}

/* Take all pieces that are ready. False at the end. */
static bool take(story* it) {
  while (cow_mlx_context_poll(it->context, 0) == COW_MLX_OK) {
    cow_mlx_piece piece = {.struct_size = sizeof piece};
    size_t room = sizeof it->text - it->length, length;
    cow_mlx_status status =
        cow_mlx_context_next(it->context, it->text + it->length, room, &length, &piece);
    it->canceled = status == COW_MLX_ECANCELED || piece.finish == COW_MLX_FINISH_CANCELED;
    if (!it->canceled) check(status);
    if (status != COW_MLX_OK) return false;
    it->length += length;
  }
  return true;
}

static void end_all(int count) {
  char line[256];
  if (read(STDIN_FILENO, line, sizeof line) <= 0) {
    watched[0].fd = -1; /* it has ended; poll() looks at it no more */
    return;
  }
  for (int i = 0; i < count; i++) check(cow_mlx_context_cancel(stories[i].context));
}

int main(int argc, char** argv) {
  int count = argc - 2, running = count, fd;
  if (count < 1 || count > MAX_STORIES) {
    return fprintf(stderr, "usage: event_loop MODEL TEXT... (1 to %d)\n", MAX_STORIES), 2;
  }
  cow_mlx_model model;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_model_load_async(argv[1], NULL, &model));
  check(cow_mlx_model_wake_fd(model, &fd));
  watch(&watched[0], -1); /* not before there is something that a line could end */
  watch(&watched[1], fd);
  for (int i = 0; i < count; i++) watch(&watched[2 + i], -1);

  while (running > 0) {
    if (poll(watched, 2 + (nfds_t)count, -1) < 0) continue; /* a signal came */
    if (watched[1].revents) {
      check(cow_mlx_model_poll(model, 0)); /* without progress, it is loaded or has failed */
      watched[1].fd = -1;
      watch(&watched[0], STDIN_FILENO);
      for (int i = 0; i < count; i++) begin(&stories[i], &watched[2 + i], model, argv[2 + i]);
    }
    if (watched[0].revents) end_all(count);
    for (int i = 0; i < count; i++) {
      if (!watched[2 + i].revents || take(&stories[i])) continue;
      watched[2 + i].fd = -1;
      running--;
    }
  }
  for (int i = 0; i < count; i++) {
    printf("%s%.*s%s\n", argv[2 + i], (int)stories[i].length, stories[i].text,
           stories[i].canceled ? " [ended]" : "");
  }
  check(cow_mlx_runtime_stop());
  return 0;
}
