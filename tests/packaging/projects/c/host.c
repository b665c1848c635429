/* Tell which engine the library runs, and what is mapped meanwhile: host MODEL */
#include <cow_mlx.h>
#include <stdio.h>

int main(int argc, char** argv) {
  char info[65536];
  size_t length;
  cow_mlx_model model;
  if (argc != 2 || cow_mlx_runtime_start(NULL) || cow_mlx_model_load(argv[1], NULL, &model) ||
      cow_mlx_runtime_info(info, sizeof info, &length)) {
    fprintf(stderr, "%s\n", cow_mlx_error_message());
    return 1;
  }
  printf("%s\n", info);
  FILE* maps = fopen("/proc/self/maps", "r"); /* Linux has it */
  int c;
  while (maps && (c = getc(maps)) != EOF) putchar(c);
  return 0;
}
