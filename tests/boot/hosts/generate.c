/* Generates some text and prints it. */
#include "host.h"

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  session s = open_session(argv[1]);
  EXPECT_OK(generate(&s, LENGTH, print_text, NULL));
  EXPECT_OK(cow_mlx_context_free(s.context));
  EXPECT_OK(cow_mlx_model_free(s.model));
  EXPECT_OK(cow_mlx_runtime_stop());
  return 0;
}
