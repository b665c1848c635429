/*
 * A host that saves and loads a context when asked: saved MODEL FILE
 *
 * Prints "ready", then answers each line with the seconds it took: "begin 0 TOKEN..." lets the
 * context hold a prompt, "save 0" and "load 0" write and read the file.
 */
#include "host.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  static task asked;
  cow_mlx_context context;
  cow_mlx_model model = start(argv[1]);
  check(cow_mlx_context_create(model, NULL, &context));
  ready();
  while (read_task(&asked)) {
    double begun = now();
    if (strcmp(asked.kind, "save") == 0) {
      check(cow_mlx_context_save(context, argv[2]));
    } else if (strcmp(asked.kind, "load") == 0) {
      check(cow_mlx_context_load(context, argv[2]));
    } else {
      cow_mlx_generation_params params = greedy(0);
      check(cow_mlx_context_begin(context, asked.prompt, asked.count, &params));
    }
    printf("%.9f\n", now() - begun);
    fflush(stdout);
  }
  return 0;
}
