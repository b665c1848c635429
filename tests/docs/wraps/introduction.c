#include <cow_mlx.h>
#include <stdio.h>

static bool on_text(const char* text, size_t length, void* user_data) {
  (void)user_data;
  return fwrite(text, 1, length, stdout) == length;
}

int main(void) {
  cow_mlx_model model;
  cow_mlx_context context;
  int32_t tokens[512];
  size_t count;
  const char* messages = "[{\"role\": \"user\", \"content\": \"What is 3 + 4?\"}]";
  /* BLOCK */
}
