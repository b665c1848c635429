/* Constant folding and elimination of common subexpressions in recordings. */
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

/* The rank, type and bits of an array of one element: each use of a constant makes a new array. */
std::string text_of(const mx::array& array) {
  return std::to_string(array.ndim()) + ' ' +
         std::to_string(static_cast<int>(array.dtype().val())) + ' ' +
         std::string(array.data<char>(), array.itemsize());
}

/* Larger constants are read as views of a number that is broadcast; those that a recording returns
 * are computed in each replay. */
constexpr size_t MOST_KEPT = 16 << 10;

bool is_number(const mx::array& array) {
  return array.size() == 1 && array.is_available() && is_sound(array);
}

/* An array full of a number. */
mx::array filled(const mx::array& like, const mx::array& number) {
  mx::array made(like.shape(), like.dtype(), nullptr, std::vector<mx::array>{});
  made.set_data(mx::allocator::malloc(made.nbytes()));
  made.set_status(mx::array::Status::available);
  auto* to = made.data<char>();
  for (size_t at = 0; at < made.nbytes(); at += made.itemsize())
    std::memcpy(to + at, number.data<char>(), number.itemsize());
  return made;
}

}  // namespace

void fold_full(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays,
               std::vector<std::pair<uint32_t, mx::array>>& kept) {
  std::map<uint32_t, mx::array> numbers;
  std::map<uint32_t, uint32_t> views; /* places of what is broadcast, by those of larger results */
  for (const auto& [place, array] : kept)
    if (is_number(array)) numbers.emplace(place, array);
  for (Recorded& step : steps) {
    const bool reads_views =
        !is(*step.primitive, "AsStrided"); /* that takes row-major arrays alone */
    for (uint32_t& place : step.inputs)
      if (const auto view = views.find(place); reads_views && view != views.end())
        place = view->second;
    const bool is_full = is(*step.primitive, "Full");
    if (!is_full && !is(*step.primitive, "Broadcast")) continue;
    const auto number = numbers.find(step.inputs[0]);
    const mx::array& made = arrays[step.outputs[0]];
    if (number == numbers.end() || made.dtype() != number->second.dtype()) continue;
    if (!is_full) { /* Full may read it */
      numbers.emplace(step.outputs[0], number->second);
    } else if (made.nbytes() > MOST_KEPT) {
      if (arrays[step.inputs[0]].shape() == made.shape())
        views.emplace(step.outputs[0], step.inputs[0]);
    } else if (made.size() > 0) {
      kept.emplace_back(step.outputs[0], filled(made, number->second));
      step.primitive = nullptr;
    }
  }
  std::erase_if(steps, [](const Recorded& step) { return step.primitive == nullptr; });
}

void eliminate_common(std::vector<Recorded>& steps,
                      const std::vector<std::pair<uint32_t, mx::array>>& kept, size_t count,
                      std::vector<uint32_t>& results) {
  std::vector<uint32_t> same(count);
  std::iota(same.begin(), same.end(), 0);
  std::map<std::string, uint32_t> numbers;
  for (const auto& [place, array] : kept)
    if (is_number(array)) same[place] = numbers.try_emplace(text_of(array), place).first->second;
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
