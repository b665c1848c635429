/* What the hosts of these tests share. argv[1] is the model's folder. A host
 * prints what it has to show on stdout, and on stderr what is not as expected. */
#ifndef HOST_H
#define HOST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cow_mlx.h"

#define PROMPT "Once upon a time"
enum { LENGTH = 16, PROMPT_CAPACITY = 64 };

#define EXPECT(condition)                                                         \
  do {                                                                            \
    if (!(condition)) {                                                           \
      fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, \
              cow_mlx_error_message());                                           \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)

#define EXPECT_OK(call) EXPECT((call) == COW_MLX_OK)

typedef struct session {
  cow_mlx_model model;
  cow_mlx_context context;
  int32_t tokens[PROMPT_CAPACITY];
  size_t count;
} session;

static inline session open_session(const char* path) {
  session s;
  EXPECT_OK(cow_mlx_model_load(path, NULL, &s.model));
  EXPECT_OK(cow_mlx_context_create(s.model, NULL, &s.context));
  EXPECT_OK(cow_mlx_model_tokenize(s.model, PROMPT, COW_MLX_NUL, COW_MLX_ADD_SPECIAL, s.tokens,
                                   PROMPT_CAPACITY, &s.count));
  return s;
}

static inline cow_mlx_status generate(const session* s, size_t length, cow_mlx_text_fn on_text,
                                      void* user_data) {
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = length;
  return cow_mlx_context_generate(s->context, s->tokens, s->count, &params, on_text, user_data,
                                  NULL);
}

static inline bool print_text(const char* text, size_t length, void* user_data) {
  (void)user_data;
  return fwrite(text, 1, length, stdout) == length;
}

/* Generate again and again, until a call fails. */
static inline void* generate_forever(void* data) {
  const session* s = (const session*)data;
  while (generate(s, 64, NULL, NULL) == COW_MLX_OK) cow_mlx_context_reset(s->context);
  return NULL;
}

/* Wait until a generation is really under way on a context. */
static inline void await_generation(const session* s) {
  char info[4096];
  size_t length;
  do {
    EXPECT_OK(cow_mlx_context_info(s->context, info, sizeof info, &length));
  } while (!strstr(info, "\"generating\": true"));
}

#endif
