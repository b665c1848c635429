#include "sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace cowmlx {
namespace {

constexpr int BUCKETS = 1024;
constexpr float FINENESS = 32; /* buckets for a difference of 1: what is beyond 32 is in the last */
constexpr int COPIES = 2;      /* so that an addition need not wait for the one before */

int bucket_of(float number) {
  constexpr float LAST = (BUCKETS - 1) / FINENESS;
  if (!(number < LAST)) return BUCKETS - 1;
  return number > 0 ? static_cast<int>(number * FINENESS) : 0; /* beside a NaN, best() may be low */
}

struct Weighed {
  float number, weight;
};

/* The same among a few: a quickselect in three parts, so that equal numbers go at once. */
float reach_among(Weighed* from, Weighed* end, double target) {
  float reached = std::numeric_limits<float>::infinity();
  while (from < end) {
    const float a = from->number, b = from[(end - from) / 2].number, c = end[-1].number;
    const float pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));
    Weighed* const equal =
        std::partition(from, end, [pivot](const Weighed& one) { return one.number < pivot; });
    Weighed* const above =
        std::partition(equal, end, [pivot](const Weighed& one) { return !(one.number > pivot); });
    double below_weight = 0, equal_weight = 0;
    for (const Weighed* one = from; one < equal; one++) below_weight += one->weight;
    for (const Weighed* one = equal; one < above; one++) equal_weight += one->weight;
    if (below_weight >= target) {
      end = equal;
    } else if (below_weight + equal_weight >= target) {
      return pivot;
    } else {
      target -= below_weight + equal_weight;
      from = above;
    }
    reached = pivot;
  }
  return reached;
}

}  // namespace

float reach(const float* numbers, const float* weights, int n, double target) {
  double totals[COPIES][BUCKETS] = {};
  int i = 0;
  for (; i + COPIES <= n; i += COPIES)
    for (int copy = 0; copy < COPIES; copy++)
      totals[copy][bucket_of(numbers[i + copy])] += weights != nullptr ? weights[i + copy] : 1;
  for (; i < n; i++) totals[0][bucket_of(numbers[i])] += weights != nullptr ? weights[i] : 1;
  double before = 0;
  int bucket = 0;
  for (; bucket < BUCKETS; bucket++) {
    const double own = totals[0][bucket] + totals[1][bucket];
    if (before + own >= target) break;
    before += own;
  }
  if (bucket == BUCKETS) return std::numeric_limits<float>::infinity();
  std::vector<Weighed> members;
  for (i = 0; i < n; i++)
    if (bucket_of(numbers[i]) == bucket)
      members.push_back({numbers[i], weights != nullptr ? weights[i] : 1});
  return reach_among(members.data(), members.data() + members.size(), target - before);
}

namespace {

constexpr float INFINITE = std::numeric_limits<float>::infinity();
constexpr double LARGEST_SCALE = 1e30; /* cowmlx/generation/sampling/filters.py has it, too */
constexpr double BIT = 0.693147180559945309417; /* ln 2 */

/* Apply a penalty to every token among the last of the sequence once. */
void penalize(const PenaltyStep& step, const SampleRow& row, int n, float* logits) {
  const auto size = static_cast<int64_t>(
      std::min(step.window, static_cast<uint64_t>(std::max<int64_t>(row.recent_count, 0))));
  std::vector<int32_t> tokens(row.recent + row.recent_count - size, row.recent + row.recent_count);
  std::sort(tokens.begin(), tokens.end());
  for (size_t i = 0; i < tokens.size();) {
    size_t end = i;
    while (end < tokens.size() && tokens[end] == tokens[i]) end++;
    const int32_t token = tokens[i];
    const auto count = static_cast<float>(end - i);
    i = end;
    if (token < 0 || token >= n) continue;
    float& logit = logits[token];
    switch (step.kind) {
      case Penalty::Repetition:
        logit = logit < 0 ? logit * step.number : logit / step.number;
        break;
      case Penalty::Presence:
        logit -= step.number;
        break;
      case Penalty::Frequency:
        logit -= step.number * count;
        break;
    }
  }
}

/* Bias, penalties and mask. `raw` are the logits as they were, or null where nothing forbids. */
void adjust(const Table& table, const SampleRow& row, int n, float* logits, const float* raw) {
  for (const auto& [token, value] : row.options->bias)
    if (token >= 0 && token < n) logits[token] += value;
  for (const PenaltyStep& step : row.options->penalties) penalize(step, row, n, logits);
  for (int64_t i = 0; i < row.term_count; i++) {
    const auto [token, term] = row.terms[i];
    if (token >= 0 && token < n) logits[token] -= term;
  }
  if (row.allowed == nullptr) return;
  for (int i = 0; i < n; i++) logits[i] = row.allowed[i] ? logits[i] : -INFINITE;
  if (raw != nullptr && table.highest(logits, n) == -INFINITE)
    for (int i = 0; i < n; i++) logits[i] = row.allowed[i] ? raw[i] : -INFINITE;
}

/* The tokens that are left, in their order, with their logits. */
class Left {
 public:
  Left(const Table& table, int n, const SampleMemory& memory)
      : table_(table), memory_(memory), values_(memory.logits), size_(n) {}

  const float* values() const { return values_; }
  /* Null: every token. */
  const int32_t* tokens() const { return dense_ ? nullptr : memory_.tokens; }
  int size() const { return size_; }
  float best() const { return table_.highest(values_, size_); }

  /* Keep the places for which `keeps(place)` is true; all of them if it is true for none. */
  template <class Keeps>
  void keep(Keeps keeps) {
    const float first_value = values_[0];
    const int32_t first_token = dense_ ? 0 : memory_.tokens[0];
    int kept = 0;
    for (int i = 0; i < size_; i++) {
      /* What is written counts only if it is kept: a branch would often be foreseen wrongly. */
      const float value = values_[i];
      const int32_t token = dense_ ? i : memory_.tokens[i];
      const int stays = static_cast<int>(keeps(i)) & static_cast<int>(value > -INFINITE);
      memory_.values[kept] = value;
      memory_.tokens[kept] = token;
      kept += stays;
    }
    if (kept == 0) { /* the loop has written there */
      memory_.values[0] = first_value;
      memory_.tokens[0] = first_token;
      return;
    }
    values_ = memory_.values;
    dense_ = false;
    size_ = kept;
  }

  void keep_top_n_sigma(float n) {
    const float most = best();
    int64_t count = 0;
    double sum = 0, squares = 0;
    for (int i = 0; i < size_; i++)
      if (values_[i] > -INFINITE) {
        count++;
        sum += double{most} - values_[i];
      }
    const double mean = sum / static_cast<double>(std::max<int64_t>(count, 1));
    for (int i = 0; i < size_; i++)
      if (values_[i] > -INFINITE) {
        const double off = double{most} - values_[i] - mean;
        squares += off * off;
      }
    const double sigma = std::sqrt(squares / static_cast<double>(std::max<int64_t>(count, 1)));
    const auto least = static_cast<float>(most - n * sigma);
    const float* values = values_;
    keep([=](int i) { return !(values[i] < least); });
  }

  void keep_top_p(double top_p) {
    const float most = best();
    const double total = table_.exponentials(values_, most, size_, memory_.weights);
    float* distances = distances_from(most);
    const float last = reach(distances, memory_.weights, size_, top_p * total);
    keep([=](int i) { return distances[i] <= last; });
  }

  void keep_min_p(float log_min_p) {
    const float least = best() + log_min_p;
    const float* values = values_;
    keep([=](int i) { return !(values[i] < least); });
  }

  void keep_typical(double typical_p) {
    const float most = best();
    float* weights = memory_.weights;
    const double total = table_.exponentials(values_, most, size_, weights);
    const auto log_total = static_cast<float>(std::log(total));
    float* distances = distances_from(most);
    double entropy = 0;
    for (int i = 0; i < size_; i++) {
      weights[i] /= static_cast<float>(total);
      const float surprise = distances[i] + log_total;
      entropy += weights[i] > 0 ? weights[i] * surprise : 0;
      distances[i] = surprise;
    }
    const auto mean = static_cast<float>(entropy);
    for (int i = 0; i < size_; i++) distances[i] = std::fabs(distances[i] - mean);
    const float last = reach(distances, weights, size_, typical_p);
    keep([=](int i) { return distances[i] <= last; });
  }

  /* `spared` are in ascending order. */
  void exclude_top_choices(float threshold, const double* spared, const double* end) {
    float* weights = memory_.weights;
    const double total = table_.exponentials(values_, best(), size_, weights);
    float least = INFINITE;
    for (int i = 0; i < size_; i++) {
      weights[i] /= static_cast<float>(total);
      if (weights[i] > threshold) least = std::min(least, weights[i]);
    }
    if (least == INFINITE) return;
    keep([&, least, weights](int i) {
      const int32_t token = dense_ ? i : memory_.tokens[i];
      return weights[i] <= least || std::binary_search(spared, end, static_cast<double>(token));
    });
  }

  void keep_top_k(int64_t top_k) {
    if (top_k >= size_) return;
    const float* distances = distances_from(best());
    const float near = reach(distances, nullptr, size_, static_cast<double>(top_k));
    /* Logits may differ where their distances do not. */
    std::vector<float> first;
    for (int i = 0; i < size_; i++)
      if (distances[i] <= near) first.push_back(values_[i]);
    if (static_cast<int64_t>(first.size()) < top_k) return;
    const auto last = first.begin() + top_k - 1;
    std::nth_element(first.begin(), last, first.end(), std::greater<>());
    const float least = *last;
    const float* values = values_;
    int64_t room = top_k;
    for (int i = 0; i < size_; i++) room -= values[i] > least;
    keep([=, &room](int i) { return values[i] > least || (values[i] == least && room-- > 0); });
  }

  /* The inverse of a temperature that grows with the entropy: `lowest` where one token is certain,
   * `highest` where all are equally probable. */
  double scale_by_entropy(double lowest, double highest, double exponent) {
    const float most = best();
    const double total = table_.exponentials(values_, most, size_, memory_.weights);
    int64_t count = 0;
    double mean = 0;
    for (int i = 0; i < size_; i++) {
      count += values_[i] > -INFINITE;
      if (memory_.weights[i] > 0) mean += memory_.weights[i] * (double{most} - values_[i]);
    }
    if (count < 2) return 1;
    const double part = (mean / total + std::log(total)) / std::log(static_cast<double>(count));
    const double within = std::min(std::max(part, 0.0), 1.0);
    const double temperature = lowest + (highest - lowest) * std::pow(within, exponent);
    return std::min(1 / temperature, LARGEST_SCALE);
  }

  /* Drop what is more surprising at this scale, but the best. Returns the logarithm of what is
   * left, as a multiple of the best one's probability. */
  double keep_unsurprising(float most_surprise, float scale) {
    const float most = best();
    float *distances = distances_from(most), *weights = memory_.weights;
    for (int i = 0; i < size_; i++) distances[i] *= -scale;
    const double log_total = std::log(table_.exponentials(distances, 0, size_, weights));
    const auto least = static_cast<float>(std::min(log_total - most_surprise * BIT, 0.0));
    double left = 0;
    for (int i = 0; i < size_; i++) left += distances[i] >= least ? weights[i] : 0;
    keep([=](int i) { return distances[i] >= least; });
    return std::log(left);
  }

  float value_of(int32_t token) const {
    if (dense_) return values_[token];
    const int32_t* const end = memory_.tokens + size_;
    const int32_t* const place = std::lower_bound<const int32_t*>(memory_.tokens, end, token);
    return place < end ? values_[place - memory_.tokens] : values_[0];
  }

 private:
  /* How far below the best each is. */
  float* distances_from(float most) {
    for (int i = 0; i < size_; i++) memory_.distances[i] = most - values_[i];
    return memory_.distances;
  }

  const Table& table_;
  const SampleMemory& memory_;
  const float* values_;
  int size_;
  bool dense_ = true;
};

/* A row on its way through the samplers. */
struct Sampling {
  Left left;
  const SampleRow& row;
  uint64_t key;
  std::optional<float> scale;     /* the inverse of the temperature */
  std::optional<double> log_left; /* of mirostat: the logarithm of the mass that it left */
};

using Numbers = std::vector<double>;

struct Sampler {
  const char* name;
  size_t numbers; /* at least */
  void (*apply)(Sampling& on, const Numbers& numbers);
};

/* SAMPLERS in cowmlx/generation/sampling/filters.py decides which of these run, in what order. */
constexpr Sampler SAMPLERS[] = {
    {"top_n_sigma", 1,
     [](Sampling& on, const Numbers& own) {
       on.left.keep_top_n_sigma(static_cast<float>(own[0]));
     }},
    {"top_p", 1, [](Sampling& on, const Numbers& own) { on.left.keep_top_p(own[0]); }},
    {"min_p", 1, /* its logarithm */
     [](Sampling& on, const Numbers& own) { on.left.keep_min_p(static_cast<float>(own[0])); }},
    {"typical_p", 1, [](Sampling& on, const Numbers& own) { on.left.keep_typical(own[0]); }},
    {"xtc", 2, /* probability, threshold, then the spared tokens */
     [](Sampling& on, const Numbers& own) {
       if (own[0] > sample_coin(on.key))
         on.left.exclude_top_choices(static_cast<float>(own[1]), own.data() + 2,
                                     own.data() + own.size());
     }},
    {"top_k", 1,
     [](Sampling& on, const Numbers& own) { on.left.keep_top_k(static_cast<int64_t>(own[0])); }},
    {"dynatemp", 3, /* lowest and highest temperature, exponent */
     [](Sampling& on, const Numbers& own) {
       on.scale = static_cast<float>(on.left.scale_by_entropy(own[0], own[1], own[2]));
     }},
    {"temperature", 1, /* its inverse */
     [](Sampling& on, const Numbers& own) {
       if (!on.scale) on.scale = static_cast<float>(own[0]);
     }},
    {"mirostat", 0,
     [](Sampling& on, const Numbers&) {
       on.log_left = on.left.keep_unsurprising(on.row.most_surprise, on.scale.value_or(1));
     }},
};

int32_t first_best(const Table& table, const float* logits, int n) {
  const float best = table.highest(logits, n);
  for (int i = 0; i < n; i++)
    if (logits[i] == best) return i;
  return 0; /* no logit is a number */
}

}  // namespace

int find_sampler(const std::string& name, size_t numbers) {
  for (size_t i = 0; i < std::size(SAMPLERS); i++)
    if (name == SAMPLERS[i].name && numbers >= SAMPLERS[i].numbers) return static_cast<int>(i);
  return -1;
}

Sampled sample_row(const Table& table, const SampleRow& row, int n, const SampleMemory& memory) {
  const SampleOptions& options = *row.options;
  const bool restores = options.forbids && row.allowed != nullptr;
  if (restores) std::copy_n(memory.logits, n, memory.values);
  adjust(table, row, n, memory.logits, restores ? memory.values : nullptr);
  if (options.samplers.empty()) return {first_best(table, memory.logits, n), 0};
  Sampling on{Left(table, n, memory), row, sample_key(options.seed, row.number), {}, {}};
  for (const SamplerStep& step : options.samplers) SAMPLERS[step.sampler].apply(on, step.numbers);
  const Left& left = on.left;
  const float best = left.best(), scale = on.scale.value_or(1);
  const Noise noise(table, on.key, n);
  const int32_t token = left.tokens() == nullptr
                            ? noise.best_of_all(left.values(), best, scale)
                            : noise.best_of(left.values(), left.tokens(), left.size(), best, scale);
  if (!on.log_left) return {token, 0};
  const double below = double{scale} * (best - left.value_of(token));
  /* Below 0 only beside logits that are no numbers. */
  return {token, static_cast<float>(std::max((*on.log_left + below) / BIT, 0.0))};
}

}  // namespace cowmlx
