#include "draw_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "draw_noise.h"
#include "draw_select.h"

namespace cowmlx {
namespace {

constexpr float INFINITE = std::numeric_limits<float>::infinity();

/* Apply a penalty to every token among the last of the sequence once. */
void penalize(const PenaltyStep& step, const DrawRow& row, int n, float* logits) {
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
void adjust(const Table& table, const DrawRow& row, int n, float* logits, const float* raw) {
  for (const auto& [token, value] : row.options->bias)
    if (token >= 0 && token < n) logits[token] += value;
  for (const PenaltyStep& step : row.options->penalties) penalize(step, row, n, logits);
  if (row.allowed == nullptr) return;
  for (int i = 0; i < n; i++) logits[i] = row.allowed[i] ? logits[i] : -INFINITE;
  if (raw != nullptr && table.highest(logits, n) == -INFINITE)
    for (int i = 0; i < n; i++) logits[i] = row.allowed[i] ? raw[i] : -INFINITE;
}

/* The tokens that are left, in their order, with their logits. */
class Left {
 public:
  Left(const Table& table, int n, const DrawMemory& memory)
      : table_(table), memory_(memory), values_(memory.logits), size_(n) {}

  const float* values() const { return values_; }
  /* Null: every token. */
  const int32_t* tokens() const { return dense_ ? nullptr : memory_.tokens; }
  int size() const { return size_; }
  float best() const { return table_.highest(values_, size_); }

  /* Drop all but what `keeps(place)` says, unless it says so of all. */
  template <class Keeps>
  void keep(Keeps keeps) {
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
    if (kept == 0) return;
    values_ = memory_.values;
    dense_ = false;
    size_ = kept;
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

  void exclude_top_choices(float threshold, const std::vector<int32_t>& spared) {
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
      return weights[i] <= least || std::binary_search(spared.begin(), spared.end(), token);
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

 private:
  /* How far below the best each is. */
  float* distances_from(float most) {
    for (int i = 0; i < size_; i++) memory_.distances[i] = most - values_[i];
    return memory_.distances;
  }

  const Table& table_;
  const DrawMemory& memory_;
  const float* values_;
  int size_;
  bool dense_ = true;
};

int32_t first_best(const Table& table, const float* logits, int n) {
  const float best = table.highest(logits, n);
  for (int i = 0; i < n; i++)
    if (logits[i] == best) return i;
  return 0; /* no logit is a number */
}

}  // namespace

int32_t draw_row(const Table& table, const DrawRow& row, int n, const DrawMemory& memory) {
  const DrawOptions& options = *row.options;
  const bool restores = options.forbids && row.allowed != nullptr;
  if (restores) std::copy_n(memory.logits, n, memory.values);
  adjust(table, row, n, memory.logits, restores ? memory.values : nullptr);
  if (!options.samples) return first_best(table, memory.logits, n);
  Left left(table, n, memory);
  if (options.top_p < 1) left.keep_top_p(options.top_p);
  if (options.has_min_p) left.keep_min_p(options.log_min_p);
  if (options.typical_p < 1) left.keep_typical(options.typical_p);
  if (row.excludes) left.exclude_top_choices(options.xtc_threshold, options.spared);
  if (options.top_k > 0) left.keep_top_k(options.top_k);
  const Noise noise(table, row.key, n);
  return left.tokens() == nullptr
             ? noise.best_of_all(left.values(), left.best(), options.scale)
             : noise.best_of(left.values(), left.tokens(), left.size(), left.best(), options.scale);
}

}  // namespace cowmlx
