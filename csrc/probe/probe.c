/*
 * The host that `python -m cowmlx doctor` runs, since a Python that asks would be joined, and not
 * booted: cowmlx-probe LIBRARY [MODEL]
 *
 * Opens the library by its path as a host does, starts the runtime, and lets a model say a few
 * tokens if there is one. Prints one line a step: its name, a tab, the status's name, a tab, and
 * what came out or went wrong. Ends with 0 if every step was OK, 1 if not.
 */
#include <cow_mlx.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 8, PROMPT_CAPACITY = 64 };
static const char prompt[] = "Hello";

/* The functions used here, each a pointer of the type that the header gives it. */
#define FUNCTIONS(X)  \
  X(version)          \
  X(abi_version)      \
  X(status_name)      \
  X(error_message)    \
  X(runtime_start)    \
  X(runtime_info)     \
  X(model_load)       \
  X(model_tokenize)   \
  X(context_create)   \
  X(context_generate) \
  X(generation_params_init)

static struct {
#define MEMBER(name) __typeof__(&cow_mlx_##name) name;
  FUNCTIONS(MEMBER)
#undef MEMBER
} api;

static void report(const char* step, const char* status, const char* text) {
  printf("%s\t%s\t", step, status);
  for (; *text; text++) putchar(*text == '\n' || *text == '\t' ? ' ' : *text);
  putchar('\n');
  fflush(stdout); /* a crash shall not take it along */
}

static void require(const char* step, cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  report(step, api.status_name(status), api.error_message());
  exit(1);
}

static void open_library(const char* path) {
  void* library = dlopen(path, RTLD_NOW);
  if (!library) {
    report("open", "ENOENT", dlerror());
    exit(1);
  }
#define LOOK_UP(name)                                                \
  *(void**)&api.name = dlsym(library, "cow_mlx_" #name);             \
  if (!api.name) {                                                   \
    report("open", "EUNSUPPORTED", "it has no cow_mlx_" #name "()"); \
    exit(1);                                                         \
  }
  FUNCTIONS(LOOK_UP)
#undef LOOK_UP
  char text[256];
  snprintf(text, sizeof text, "%s %" PRIu32, api.version(), api.abi_version());
  report("open", "OK", text);
}

static void start(void) {
  size_t length = 0;
  require("start", api.runtime_start(NULL));
  require("start", api.runtime_info(NULL, 0, &length));
  size_t capacity = length + 1024;
  char* text = malloc(capacity);
  if (!text) exit(1);
  require("start", api.runtime_info(text, capacity, &length));
  report("start", "OK", text);
  free(text);
}

static bool keep(const char* data, size_t length, void* user_data) {
  (void)data;
  *(size_t*)user_data += length;
  return true;
}

static void generate(const char* path) {
  cow_mlx_model model;
  cow_mlx_context context;
  int32_t tokens[PROMPT_CAPACITY];
  size_t count, bytes = 0;
  require("load", api.model_load(path, NULL, &model));
  report("load", "OK", "");
  cow_mlx_generation_params params;
  cow_mlx_stats stats = {.struct_size = sizeof stats};
  api.generation_params_init(&params, sizeof params);
  params.max_tokens = TOKENS;
  require("generate", api.context_create(model, NULL, &context));
  require("generate", api.model_tokenize(model, prompt, COW_MLX_NUL, COW_MLX_ADD_SPECIAL, tokens,
                                         PROMPT_CAPACITY, &count));
  require("generate", api.context_generate(context, tokens, count, &params, keep, &bytes, &stats));
  char text[256];
  snprintf(text, sizeof text, "%zu tokens, %zu bytes of text, %.3f s to the first token",
           stats.generated_tokens, bytes, stats.first_token_seconds);
  report("generate", "OK", text);
}

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    fprintf(stderr, "usage: %s LIBRARY [MODEL]\n", argv[0]);
    return 2;
  }
  open_library(argv[1]);
  start();
  if (argc == 3) generate(argv[2]);
  return 0;
}
