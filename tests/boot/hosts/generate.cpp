// Generates some text, as a C++ host would.
#include <string>
#include <thread>

#include "host.h"

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  EXPECT_OK(cow_mlx_runtime_start(nullptr));
  std::string text;
  std::thread worker([&] {
    const session s = open_session(argv[1]);
    const auto append = [](const char* data, size_t length, void* user_data) {
      static_cast<std::string*>(user_data)->append(data, length);
      return true;
    };
    EXPECT_OK(generate(&s, LENGTH, append, &text));
  });
  worker.join();
  EXPECT_OK(cow_mlx_runtime_stop());
  return fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}
