/*
 * A network of two layers that learns which points have coordinates of one sign: network
 * Its loss is one program, whose gradient the library derives; operators of arrays do the rest.
 */
#include <cow_mlx.hpp>
#include <cstdio>
#include <utility>
#include <vector>

using cowmlx::Array;
using cowmlx::Dtype;

int main() {
  constexpr int points = 128, hidden = 16, steps = 1000;
  unsigned random = 1;
  const auto next = [&] { /* anywhere from -1 to 1 */
                          random = random * 1103515245u + 12345u;
                          return static_cast<float>(random >> 16 & 0x7fff) / 16384 - 1;
  };
  std::vector<float> x(points * 2), y(points), weights(2 * hidden), more(hidden);
  for (float& each : x) each = next();
  for (int i = 0; i < points; i++) y[i] = x[2 * i] * x[2 * i + 1] > 0;
  for (float& each : weights) each = next();
  for (float& each : more) each = next() / 2;

  try {
    cowmlx::Runtime runtime;
    cowmlx::ProgramBuilder builder;
    auto inputs = builder.input("x", Dtype::float32, {"points", 2});
    auto targets = builder.input("y", Dtype::float32, {"points"});
    auto w1 = builder.parameter("w1", Dtype::float32, {2, hidden});
    auto b1 = builder.parameter("b1", Dtype::float32, {hidden});
    auto w2 = builder.parameter("w2", Dtype::float32, {hidden});
    auto b2 = builder.parameter("b2", Dtype::float32, {});
    auto logit = matmul(tanh(matmul(inputs, w1) + b1), w2) + b2;
    builder.output("loss", binary_cross_entropy(logit, targets));
    builder.output("right", sum(equal(logit > 0, targets > 0.5)));
    const cowmlx::Program program = builder.build();
    const cowmlx::Program gradient = program.derive(
        "{\"gradient\": {\"of\": \"loss\", \"with_respect_to\": [\"w1\", \"b1\", \"w2\", \"b2\"],"
        " \"value\": true}}");

    const Array data(x, {points, 2}), labels(y);
    std::vector<Array> parameters; /* w1, b1, w2, b2 */
    parameters.emplace_back(weights, cowmlx::Shape{2, hidden});
    parameters.emplace_back(std::vector<float>(hidden));
    parameters.emplace_back(more);
    parameters.emplace_back(std::vector<float>{0}, cowmlx::Shape{});
    const auto all = [&] {
      return std::vector<cowmlx::Input>{data,          labels,        parameters[0],
                                        parameters[1], parameters[2], parameters[3]};
    };
    const float first = program.run(all(), 2)[0].values<float>()[0];
    for (int step = 0; step < steps; step++) {
      const std::vector<Array> slopes = gradient.run(all(), 5); /* behind the loss */
      for (std::size_t i = 0; i < parameters.size(); i++)
        parameters[i] = parameters[i] - slopes[i + 1];
    }
    const std::vector<Array> last = program.run(all(), 2);
    std::printf("loss %.2f, then %.2f: %d of %d points are classified right\n", first,
                last[0].values<float>()[0], last[1].values<std::int32_t>()[0], points);
  } catch (const cowmlx::Error& error) {
    std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
    return 1;
  }
}
