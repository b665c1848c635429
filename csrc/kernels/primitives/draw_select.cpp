#include "draw_select.h"

#include <algorithm>
#include <limits>
#include <vector>

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

}  // namespace cowmlx
