/* Samples of single rows with any options, beside a reference that sorts: what is sampled is
 * always a token that the filters leave. Ends with 0, or at the first thing that is not so. */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#define ISA portable
#include "kernels/simd/portable.h"
#include "kernels/families/sample.h"

#include "kernels/primitives/sample.h"

#define EXPECT(condition)                                                     \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

namespace {

using namespace cowmlx;

Table portable_parts() {
  Table table{};
  table.highest = portable::maximum_of;
  table.exponentials = portable::exponentials;
  table.threefry = portable::threefry;
  table.contenders = portable::contenders;
  return table;
}

const int MIROSTAT = find_sampler("mirostat", 0);

void add(SampleOptions& options, const char* name, std::vector<double> numbers) {
  const int sampler = find_sampler(name, numbers.size());
  EXPECT(sampler >= 0);
  options.samplers.push_back({sampler, std::move(numbers)});
}

std::mt19937 engine(7);

int below(int count) { return static_cast<int>(engine() % static_cast<unsigned>(count)); }

std::vector<float> random_logits(int n) {
  std::normal_distribution<float> normal(0, static_cast<float>(1 + below(8)));
  std::vector<float> logits(static_cast<size_t>(n));
  for (float& logit : logits) {
    logit = normal(engine);
    if (below(3) == 0) logit = std::round(logit); /* equal ones */
  }
  return logits;
}

/* One row; memory has no number more than it has to, so that a sanitizer sees every other. */
int32_t sample(const Table& table, const SampleRow& row, const std::vector<float>& logits) {
  const auto n = logits.size();
  std::unique_ptr<float[]> own(new float[n]), weights(new float[n]), distances(new float[n]),
      values(new float[n]);
  std::unique_ptr<int32_t[]> tokens(new int32_t[n]);
  std::copy(logits.begin(), logits.end(), own.get());
  const Sampled sampled =
      sample_row(table, row, static_cast<int>(n),
                 {own.get(), weights.get(), distances.get(), values.get(), tokens.get()});
  const bool bounded =
      std::any_of(row.options->samplers.begin(), row.options->samplers.end(),
                  [](const SamplerStep& step) { return step.sampler == MIROSTAT; });
  EXPECT(bounded ? !(sampled.surprise < 0) : sampled.surprise == 0);
  return sampled.token;
}

/* How many logits are above one. */
int rank_of(const std::vector<float>& logits, int32_t token) {
  return static_cast<int>(std::count_if(logits.begin(), logits.end(), [&](float logit) {
    return logit > logits[static_cast<size_t>(token)];
  }));
}

void any_options(const Table& table) {
  for (int round = 0; round < 600; round++) {
    const int n = 1 + below(below(4) == 0 ? 3000 : 90);
    const std::vector<float> logits = random_logits(n);
    SampleOptions options;
    options.seed = engine() * uint64_t{0x9E3779B97F4A7C15};
    if (below(5) > 0) {
      if (below(3) == 0) add(options, "top_n_sigma", {0.5});
      if (below(2)) add(options, "top_p", {0.8});
      if (below(3) == 0) add(options, "min_p", {-3});
      if (below(3) == 0) add(options, "typical_p", {0.7});
      if (below(2)) add(options, "xtc", {0.7, 0.05, 0, static_cast<double>(n / 2)});
      if (below(2)) add(options, "top_k", {static_cast<double>(1 + below(n + 3))});
      if (below(3) == 0) add(options, "dynatemp", {0, 2, 1});
      add(options, "temperature", {below(2) ? 1.25 : 1e30});
      if (below(3) == 0) add(options, "mirostat", {});
    }
    if (below(3) == 0) options.bias = {{below(n), 2.0f}, {n + 5, 1.0f}, {-1, 1.0f}};
    options.forbids = below(2);
    if (below(2)) options.penalties.push_back({Penalty::Frequency, UINT64_MAX, 0.5f});
    if (below(2)) options.penalties.push_back({Penalty::Repetition, 2, 1.5f});
    std::vector<int32_t> recent;
    for (int i = below(9); i > 0; i--) recent.push_back(below(n + 2));
    std::unique_ptr<bool[]> allowed(new bool[static_cast<size_t>(n)]());
    const int only = below(n);
    allowed[static_cast<size_t>(only)] = true;
    const bool masked = below(3) == 0;
    const std::vector<std::pair<int32_t, float>> terms = {{below(n), 3.0f}, {n, 1.0f}, {-1, 1.0f}};
    const SampleRow row{&options,
                        engine(),
                        recent.data(),
                        static_cast<int64_t>(recent.size()),
                        terms.data(),
                        below(4),
                        static_cast<float>(below(12) - 3),
                        masked ? allowed.get() : nullptr};
    const int32_t token = sample(table, row, logits);
    EXPECT(token >= 0 && token < n);
    if (masked) EXPECT(token == only);
  }
}

void filters(const Table& table) {
  for (int round = 0; round < 300; round++) {
    const int n = 2 + below(400);
    const std::vector<float> logits = random_logits(n);
    SampleOptions options;
    const SampleRow row{&options, engine(), nullptr, 0, nullptr, 0, 0, nullptr};
    const int top_k = 1 + below(n);
    add(options, "top_k", {static_cast<double>(top_k)});
    add(options, "temperature", {0.1});
    EXPECT(rank_of(logits, sample(table, row, logits)) < top_k);
    options.samplers.clear();
    add(options, "top_p", {0.5});
    add(options, "temperature", {0.1});
    std::vector<float> ordered = logits;
    std::sort(ordered.begin(), ordered.end(), std::greater<>());
    double total = 0, mass = 0;
    for (float logit : ordered) total += std::exp(double{logit} - ordered[0]);
    size_t last = 0;
    for (; last < ordered.size(); last++) {
      mass += std::exp(double{ordered[last]} - ordered[0]);
      if (mass >= 0.50001 * total) break;
    }
    EXPECT(logits[static_cast<size_t>(sample(table, row, logits))] >= ordered[last]);
  }
}

void selections() {
  for (int round = 0; round < 2000; round++) {
    const int n = 1 + below(300);
    std::vector<float> numbers(static_cast<size_t>(n)), weights(numbers.size());
    for (size_t i = 0; i < numbers.size(); i++) {
      numbers[i] = static_cast<float>(below(200)) / static_cast<float>(1 + below(9));
      if (below(20) == 0) numbers[i] = std::numeric_limits<float>::infinity();
      weights[i] = static_cast<float>(below(4));
    }
    const double target = 1 + below(2 * n);
    const float found = reach(numbers.data(), weights.data(), n, target);
    double below_found = 0, up_to_found = 0, all = 0;
    for (size_t i = 0; i < numbers.size(); i++) {
      all += weights[i];
      if (numbers[i] < found) below_found += weights[i];
      if (numbers[i] <= found) up_to_found += weights[i];
    }
    if (all < target) {
      EXPECT(std::isinf(found));
    } else {
      EXPECT(below_found < target && up_to_found >= target);
    }
  }
}

/* Beside what is no number, the highest of the others may be lost: they are far above `best` then,
 * and their distances far below 0. */
void no_numbers(const Table& table) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int place = 0; place < 256; place++) {
    std::vector<float> logits(256, 0.0f);
    logits[16] = 1e6f;
    logits[static_cast<size_t>(place)] = nan;
    const std::vector<std::pair<const char*, std::vector<double>>> samplers = {
        {"top_p", {0.9}},     {"typical_p", {0.9}},    {"top_k", {5}},   {"min_p", {-3}},
        {"top_n_sigma", {1}}, {"dynatemp", {0, 2, 1}}, {"mirostat", {}},
    };
    for (const auto& [name, numbers] : samplers) {
      SampleOptions options;
      add(options, name, numbers);
      const SampleRow row{&options, engine(), nullptr, 0, nullptr, 0, 3, nullptr};
      const int32_t token = sample(table, row, logits);
      EXPECT(token >= 0 && token < 256);
    }
  }
}

}  // namespace

int main() {
  const Table table = portable_parts();
  any_options(table);
  filters(table);
  selections();
  no_numbers(table);
  return 0;
}
