/*
 * Linear regression by gradient descent, written as one program: regression
 * The loop runs inside of the program, so that all of it takes one round trip.
 */
#include <cow_mlx.hpp>
#include <cstdio>
#include <vector>

using cowmlx::Dtype;

int main() {
  constexpr int points = 64;
  /* Points on y = 3 a - 2 b, where a and b are anywhere from -1 to 1. */
  std::vector<float> x(points * 2), y(points), w(2), rate = {0.01f};
  unsigned random = 1;
  for (float& each : x) {
    random = random * 1103515245u + 12345u;
    each = static_cast<float>(random >> 16 & 0x7fff) / 16384 - 1;
  }
  for (int i = 0; i < points; i++) y[i] = 3 * x[2 * i] - 2 * x[2 * i + 1];

  try {
    cowmlx::Runtime runtime;
    cowmlx::ProgramBuilder builder;
    auto inputs = builder.input("x", Dtype::float32, {"points", 2});
    auto targets = builder.input("y", Dtype::float32, {"points"});
    auto weights = builder.parameter("w", Dtype::float32, {2});
    auto step = builder.parameter("rate", Dtype::float32, {});
    auto found = builder.while_loop(
        {weights, builder.constant(0)}, [](const cowmlx::Values& state) { return state[1] < 500; },
        [&](const cowmlx::Values& state) {
          auto error = matmul(inputs, state[0]) - targets;
          auto gradient = matmul(transpose(inputs), error); /* of half of the squared error */
          return cowmlx::Values{state[0] - gradient * step, state[1] + 1};
        },
        10000);
    builder.output("found", found[0]);
    builder.output("rounds", found[1]);

    const cowmlx::Program program = builder.build();
    const auto results = program.run({{x, {points, 2}}, {y, {points}}, {w, {2}}, {rate, {}}}, 2);
    const std::vector<float> line = results[0].values<float>();
    const int rounds = results[1].values<std::int32_t>()[0];
    std::printf("y = %.3f a %+.3f b after %d rounds\n", line[0], line[1], rounds);
  } catch (const cowmlx::Error& error) {
    std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
    return 1;
  }
}
