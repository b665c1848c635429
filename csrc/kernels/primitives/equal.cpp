/* Steps of a recording that compute the same in each replay, or as an earlier one. */
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "recording.h"

namespace cowmlx {
namespace {

/* Whether two steps with equal inputs have equal results. */
bool is_equal(const Recorded& a, const Recorded& b) {
  return a.primitive->stream() == b.primitive->stream() && a.shapes == b.shapes &&
         a.dtypes == b.dtypes && a.primitive->is_equivalent(*b.primitive);
}

/* The rank, type and bits of an array of one element, which a function may write down many times.
 */
std::string text_of(const mx::array& array) {
  return std::to_string(array.ndim()) + ' ' +
         std::to_string(static_cast<int>(array.dtype().val())) + ' ' +
         std::string(array.data<char>(), array.itemsize());
}

/* Bytes of a result that is worth keeping. */
constexpr size_t MOST_KEPT = 16 << 10;

bool is_small(const Recorded& step, const std::vector<mx::array>& arrays) {
  return std::ranges::all_of(step.outputs,
                             [&](uint32_t place) { return arrays[place].nbytes() <= MOST_KEPT; });
}

}  // namespace

void take_constant(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays,
                   std::vector<std::pair<uint32_t, mx::array>>& kept) {
  std::vector<bool> constant(arrays.size());
  for (const auto& [place, array] : kept) constant[place] = array.is_available();
  std::vector<mx::array> found;
  std::vector<std::pair<uint32_t, mx::array>> computed;
  for (const Recorded& step : steps) {
    const auto is_known = [&](uint32_t place) { return constant[place]; };
    if (!is_small(step, arrays) || !std::ranges::all_of(step.inputs, is_known)) continue;
    for (const uint32_t place : step.outputs) {
      constant[place] = true;
      if (is_view(*step.primitive)) continue; /* others may fuse it */
      found.push_back(arrays[place]);
      computed.emplace_back(place, arrays[place]);
    }
  }
  try {
    mx::eval(found);
  } catch (const std::exception&) {
    return; /* a replay shows the failure */
  }
  std::erase_if(steps, [&](const Recorded& step) {
    return constant[step.outputs[0]] && !is_view(*step.primitive);
  });
  kept.insert(kept.end(), computed.begin(), computed.end());
}

void take_equal(std::vector<Recorded>& steps,
                const std::vector<std::pair<uint32_t, mx::array>>& kept, size_t count,
                std::vector<uint32_t>& results) {
  std::vector<uint32_t> same(count);
  std::iota(same.begin(), same.end(), 0);
  std::map<std::string, uint32_t> numbers;
  for (const auto& [place, array] : kept)
    if (array.size() == 1 && array.is_available())
      same[place] = numbers.try_emplace(text_of(array), place).first->second;
  std::map<std::pair<std::string, std::vector<uint32_t>>, std::vector<const Recorded*>> known;
  for (Recorded& step : steps) {
    for (uint32_t& place : step.inputs) place = same[place];
    auto& alike = known[{step.primitive->name(), step.inputs}];
    const auto found = std::ranges::find_if(
        alike, [&](const Recorded* earlier) { return is_equal(*earlier, step); });
    if (found == alike.end()) {
      alike.push_back(&step);
      continue;
    }
    for (size_t at = 0; at < step.outputs.size(); at++)
      same[step.outputs[at]] = (*found)->outputs[at];
  }
  for (uint32_t& place : results) place = same[place];
}

}  // namespace cowmlx
