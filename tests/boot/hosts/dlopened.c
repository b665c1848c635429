/* Opens the library (argv[2]) at run time, its symbols hidden from all others. It stays when it is
 * closed: its threads are in it. */
#include <dlfcn.h>
#include <stdio.h>

#include "cow_mlx.h"

#define FIND(name)                                   \
  __typeof__(&cow_mlx_##name) name;                  \
  *(void**)&name = dlsym(library, "cow_mlx_" #name); \
  if (!name) return fprintf(stderr, "no %s: %s\n", #name, dlerror()), 1

#define EXPECT_OK(call) \
  if ((call) != COW_MLX_OK) return fprintf(stderr, "%s: %s\n", #call, error_message()), 1

int main(int argc, char** argv) {
  void* library = argc == 3 ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  FIND(error_message);
  FIND(abi_version);
  FIND(runtime_start);
  FIND(runtime_stop);
  FIND(model_load);
  FIND(model_tokenize);
  FIND(context_create);
  FIND(context_begin);
  FIND(context_next);
  FIND(generation_params_init);
  if (abi_version() != COW_MLX_ABI_VERSION) return 1;

  cow_mlx_model model;
  cow_mlx_context context;
  int32_t tokens[64];
  size_t count;
  EXPECT_OK(runtime_start(NULL));
  EXPECT_OK(model_load(argv[1], NULL, &model));
  EXPECT_OK(context_create(model, NULL, &context));
  EXPECT_OK(model_tokenize(model, "Once upon a time", COW_MLX_NUL, COW_MLX_ADD_SPECIAL, tokens, 64,
                           &count));
  cow_mlx_generation_params params;
  generation_params_init(&params, sizeof params);
  params.max_tokens = 16;
  EXPECT_OK(context_begin(context, tokens, count, &params));
  char text[256];
  size_t length;
  while (context_next(context, text, sizeof text, &length, NULL) == COW_MLX_OK) {
    fwrite(text, 1, length, stdout);
  }
  EXPECT_OK(runtime_stop());
  if (dlclose(library)) return fprintf(stderr, "%s\n", dlerror()), 1;
  if (!dlopen(argv[2], RTLD_NOW | RTLD_NOLOAD)) return fprintf(stderr, "it is gone\n"), 1;
  return 0;
}
