/*
 * k-means, written as one program: kmeans
 * The loop runs until no centre moves, and takes one round trip.
 */
#include <cow_mlx.hpp>
#include <cstdio>
#include <vector>

using cowmlx::Dtype;
using cowmlx::Value;
using cowmlx::Values;

int main() {
  constexpr int clusters = 3, points = 300;
  /* Points within a distance of 1 from three places, one after the other. */
  const float places[clusters][2] = {{1, 1}, {4, 1}, {2, 4}};
  std::vector<float> data;
  unsigned random = 1;
  for (int i = 0; i < points * 2; i++) {
    random = random * 1103515245u + 12345u;
    const float off = static_cast<float>(random >> 16 & 0x7fff) / 16384 - 1;
    data.push_back(places[i / 2 % clusters][i % 2] + off);
  }

  try {
    cowmlx::Runtime runtime;
    cowmlx::ProgramBuilder builder;
    auto given = builder.input("points", Dtype::float32, {"n", 2});
    /* A row for each point, a column for each centre: 1 where it is the nearest. */
    const auto nearest = [&](const Value& centres) {
      auto apart = expand_dims(given, 1) - expand_dims(centres, 0);
      return one_hot(argmin(sum(square(apart), 2), 1), clusters);
    };
    auto first = take(given, builder.constant(std::vector<int>{0, 3, 1}, {clusters}), 0);
    auto found = builder.while_loop(
        {first, builder.constant(1.0f), builder.constant(0)},
        [](const Values& state) { return state[1] > 0; },
        [&](const Values& state) {
          auto members = nearest(state[0]);
          auto sizes = expand_dims(maximum(sum(members, 0), 1), 1);
          auto centres = matmul(transpose(members), given) / sizes;
          return Values{centres, max(abs(centres - state[0])), state[2] + 1};
        },
        100);
    builder.output("centres", found[0]);
    builder.output("sizes", sum(nearest(found[0]), 0));
    builder.output("rounds", found[2]);

    const auto results = builder.build().run({{data, {points, 2}}}, 3);
    const auto centres = results[0].values<float>(), sizes = results[1].values<float>();
    for (int i = 0; i < clusters; i++) {
      std::printf("%.0f points around %.1f, %.1f\n", sizes[i], centres[2 * i], centres[2 * i + 1]);
    }
    std::printf("after %d rounds\n", results[2].values<std::int32_t>()[0]);
  } catch (const cowmlx::Error& error) {
    std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
    return 1;
  }
}
