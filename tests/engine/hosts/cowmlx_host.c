/* A host that was written for CowMLX: its 17 names, and no other.
 *
 *     cowmlx_host FOLDER
 *
 * Prints what it generates and leaves with 1 at the first surprise. */
#include <cow_mlx_compat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                            \
  do {                                                                                \
    if (!(condition)) {                                                               \
      const char* error_ = cow_mlx_get_error();                                       \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, error_ ? error_ : "-"); \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)

enum { ROOM = 256, LENGTH = 40 };

static int steps;

static bool count_steps(float fraction, void* user_data) {
  *(float*)user_data = fraction;
  steps++;
  return true;
}

static bool refuse(float fraction, void* user_data) {
  (void)fraction;
  (void)user_data;
  return false;
}

/* Take every piece; with a buffer that is too small first, if asked to. */
static int drain(int32_t context, char* text, bool small_first) {
  int size = 0;
  for (int count = 0; count < LENGTH; count++) {
    char piece[ROOM];
    int32_t written = 0;
    if (small_first) {
      written = cow_mlx_generate_next(context, piece, 1);
      if (written < -1) {
        REQUIRE(cow_mlx_get_error() != NULL);
        REQUIRE(cow_mlx_generate_next(context, piece, 1) == written);
        int32_t needed = -written;
        REQUIRE(needed <= ROOM);
        written = cow_mlx_generate_next(context, piece, needed);
        REQUIRE(written == needed);
      }
    } else {
      written = cow_mlx_generate_next(context, piece, ROOM);
    }
    if (written == -1) {
      REQUIRE(cow_mlx_get_error() == NULL);
      break;
    }
    REQUIRE(written >= 0);
    memcpy(text + size, piece, (size_t)written);
    size += written;
  }
  text[size] = 0;
  return size;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  REQUIRE(cow_mlx_load_model(argv[1], NULL, NULL) == -1);
  REQUIRE(cow_mlx_get_error() != NULL);
  REQUIRE(cow_mlx_init());
  REQUIRE(cow_mlx_get_error() == NULL);

  float fraction = -1;
  REQUIRE(cow_mlx_load_model("/no/such/folder", NULL, NULL) == -1);
  REQUIRE(strstr(cow_mlx_get_error(), "/no/such/folder"));
  REQUIRE(cow_mlx_load_model(argv[1], refuse, NULL) == -1);
  REQUIRE(cow_mlx_get_error() != NULL);
  int32_t model = cow_mlx_load_model(argv[1], count_steps, &fraction);
  REQUIRE(model > 0);
  REQUIRE(fraction == 1);
  REQUIRE(steps > 2);

  int64_t id = cow_mlx_model_get_id(model);
  REQUIRE(id >= 0);
  REQUIRE(cow_mlx_model_from_id(id) == model);
  REQUIRE(cow_mlx_model_from_id(id + 1) == -1);
  REQUIRE(cow_mlx_model_from_id(-1) == -1);
  REQUIRE(cow_mlx_model_get_id(model + 1) == -1);

  int32_t tokens[ROOM];
  const char* prompt = "The quick brown fox";
  int32_t needed = cow_mlx_tokenize(model, prompt, -1, NULL, 0, true);
  REQUIRE(needed < -1);
  REQUIRE(cow_mlx_tokenize(model, prompt, -1, tokens, -needed - 1, true) == needed);
  REQUIRE(cow_mlx_get_error() != NULL);
  int32_t count = cow_mlx_tokenize(model, prompt, -1, tokens, ROOM, true);
  REQUIRE(count == -needed);
  REQUIRE(cow_mlx_get_error() == NULL);
  REQUIRE(cow_mlx_tokenize(model, prompt, (int32_t)strlen(prompt), tokens, ROOM, true) == count);
  REQUIRE(cow_mlx_tokenize(model, "\xff", -1, tokens + count, ROOM - count, false) == -1);
  REQUIRE(strstr(cow_mlx_get_error(), "UTF-8"));
  REQUIRE(cow_mlx_tokenize(model, prompt, -1, tokens, -1, true) == -1);

  int ends = 0;
  for (int32_t token = 0; token < 2000; token++) ends += cow_mlx_is_eog(model, token);
  REQUIRE(ends > 0);
  REQUIRE(ends < 10);
  REQUIRE(!cow_mlx_is_eog(model, -1));

  int32_t context = cow_mlx_create_context(model, count + LENGTH / 2);
  REQUIRE(context > 0);
  REQUIRE(cow_mlx_create_context(context, 0) == -1);
  REQUIRE(cow_mlx_cache_token_count(context) == 0);
  char piece[ROOM], plain[ROOM * LENGTH], asked[ROOM * LENGTH], drawn[ROOM * LENGTH];
  REQUIRE(cow_mlx_generate_next(context, piece, ROOM) == -1);
  REQUIRE(cow_mlx_get_error() != NULL); /* an error: nothing has begun */

  REQUIRE(cow_mlx_generate_begin(context, tokens, count, 0, 0, 0, 0, 0, 0, 0));
  REQUIRE(cow_mlx_cache_token_count(context) == count);
  REQUIRE(drain(context, plain, false) > 0);
  REQUIRE(cow_mlx_generate_next(context, piece, ROOM) == -1);
  REQUIRE(cow_mlx_get_error() == NULL); /* done, again */
  int32_t held = cow_mlx_cache_token_count(context);
  REQUIRE(held > count);

  /* The same with buffers that are too small first; nothing is lost. */
  REQUIRE(cow_mlx_generate_begin(context, tokens, count, 0, 1, 0, 0, 1, 20, 0));
  drain(context, asked, true);
  REQUIRE(strcmp(plain, asked) == 0);

  /* Drawn, with every option; the same seed gives the same. */
  REQUIRE(cow_mlx_generate_begin(context, tokens, count, 1.5f, 0.95f, 40, 0.01f, 1.1f, 32, -7));
  drain(context, drawn, false);
  REQUIRE(cow_mlx_generate_begin(context, tokens, count, 1.5f, 0.95f, 40, 0.01f, 1.1f, 32, -7));
  drain(context, asked, false);
  REQUIRE(strcmp(drawn, asked) == 0);
  REQUIRE(!cow_mlx_generate_begin(context, tokens, count, -1, 0, 0, 0, 0, 0, 0));
  REQUIRE(strstr(cow_mlx_get_error(), "temperature"));
  REQUIRE(!cow_mlx_generate_begin(context, tokens, -1, 0, 0, 0, 0, 0, 0, 0));

  /* Trim, and continue from the rest. */
  held = cow_mlx_cache_token_count(context);
  REQUIRE(cow_mlx_cache_trim_end(context, 2) == 2);
  REQUIRE(cow_mlx_cache_trim_front(context, 1) == 1);
  REQUIRE(cow_mlx_cache_token_count(context) == held - 3);
  REQUIRE(cow_mlx_cache_trim_end(context, -1) == -1);
  REQUIRE(cow_mlx_get_error() != NULL);
  REQUIRE(cow_mlx_cache_trim_end(context, 10000) == held - 3);
  REQUIRE(cow_mlx_cache_token_count(context) == 0);
  REQUIRE(cow_mlx_generate_begin(context, tokens, count, 0, 0, 0, 0, 0, 0, 0));
  drain(context, asked, false);
  REQUIRE(strcmp(plain, asked) == 0);

  REQUIRE(cow_mlx_reset_context(context));
  REQUIRE(cow_mlx_cache_token_count(context) == 0);
  cow_mlx_free_context(context);
  REQUIRE(cow_mlx_cache_token_count(context) == -1);
  REQUIRE(cow_mlx_get_error() != NULL);
  REQUIRE(!cow_mlx_reset_context(context));
  cow_mlx_free_model(model);
  REQUIRE(cow_mlx_model_from_id(id) == -1);
  cow_mlx_shutdown();
  fputs(plain, stdout);
  return 0;
}
