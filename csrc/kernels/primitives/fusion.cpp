/* Fuses elementwise steps of a recording, of float32, into one operation, whose intermediate
 * results lie in blocks that stay in a core's nearest cache. */
#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "elementwise.h"
#include "recording.h"

namespace cowmlx {
namespace {

constexpr size_t MOST_WORK = 1 << 24; /* numbers of all instructions: nothing ends it midway */
constexpr size_t LARGE = 1 << 12;     /* numbers of an operation that is worth several threads */

/* Steps that become one. Nothing outside of it that was written needs a result of it. */
struct Group {
  std::vector<Recorded> steps;
  std::vector<Instruction> instructions; /* whose inputs are below 0: -1 - their number */
  std::vector<uint32_t> inputs;
  std::unordered_map<uint32_t, int> numbers; /* of instructions, by the place of their result */
  std::unordered_map<uint32_t, int> readers; /* instructions that read a place */
  std::vector<Recorded> joins; /* concatenations of results, which become parts of them */

  int input(uint32_t place) {
    const auto number = std::find(inputs.begin(), inputs.end(), place) - inputs.begin();
    if (number == std::ssize(inputs)) inputs.push_back(place);
    return -1 - static_cast<int>(number);
  }
};

class Fusion {
 public:
  Fusion(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays,
         const std::vector<uint32_t>& results, bool alone)
      : arrays_(arrays), steps_(steps), alone_(alone) {
    for (const Recorded& step : steps) {
      for (const uint32_t place : step.inputs) users_[place]++;
      for (const uint32_t place : step.outputs) makers_[place] = &step;
    }
    for (const uint32_t place : results) users_[place]++;
  }

  std::vector<Recorded> fused() {
    for (const Recorded& step : steps_) {
      if (!add(step) && !join(step)) {
        for (const uint32_t place : step.inputs) close_of(place);
        written_.push_back(step);
      }
    }
    while (!groups_.empty()) close(groups_.begin());
    return std::move(written_);
  }

 private:
  using Key = std::pair<std::vector<int>, int>; /* a shape and a stream */
  using Groups = std::map<Key, Group>;          /* that are open */

  /* Where the numbers of an operand are: itself, or what is broadcast. None if no block of it can
   * be read. */
  std::optional<uint32_t> source(uint32_t place, const mx::Shape& shape) const {
    const auto made = makers_.find(place);
    if (made != makers_.end() && is(*made->second->primitive, "Broadcast")) {
      place = made->second->inputs[0];
      if (!spread(arrays_[place].shape(), shape)) return std::nullopt;
    } else if (arrays_[place].shape() != shape) {
      return std::nullopt;
    }
    if (arrays_[place].dtype() != mx::float32) return std::nullopt;
    return place;
  }

  /* Take a step into a group, or numbers that are made of a comparison together with that. */
  bool add(const Recorded& step) {
    const std::optional<Code> code = code_of(*step.primitive);
    if (code) return !is_compared(*code) && add(*code, step);
    const auto made = makers_.find(step.inputs.empty() ? UINT32_MAX : step.inputs[0]);
    if (!is(*step.primitive, "AsType") || made == makers_.end()) return false;
    const std::optional<Code> compared = code_of(*made->second->primitive);
    if (!compared || !is_compared(*compared)) return false;
    Recorded numbers = step;
    numbers.inputs = made->second->inputs;
    for (const uint32_t place : numbers.inputs) users_[place]++;
    if (add(*compared, numbers)) return true;
    for (const uint32_t place : numbers.inputs) users_[place]--;
    return false;
  }

  bool add(Code code, const Recorded& step) {
    const size_t operands = is_binary(code) ? 2 : 1;
    if (step.inputs.size() != operands || step.dtypes[0] != mx::float32) return false;
    const mx::Shape& shape = step.shapes[0];
    std::vector<uint32_t> read;
    for (const uint32_t place : step.inputs) {
      const std::optional<uint32_t> found = source(place, shape);
      if (!found || arrays_[step.outputs[0]].size() == 0) return false;
      read.push_back(*found);
    }
    const Key key{{shape.begin(), shape.end()}, step.primitive->stream().index};
    for (const uint32_t place : read) { /* an open group of another shape comes before */
      const auto group = open_.find(place);
      if (group != open_.end() && group->second != key) close(groups_.find(group->second));
    }
    Group& own = groups_[key];
    Instruction made{code, 0, 0};
    for (size_t at = 0; at < operands; at++) {
      const auto number = own.numbers.find(read[at]);
      (at == 0 ? made.a : made.b) =
          number != own.numbers.end() ? number->second : own.input(read[at]);
      if (read[at] == step.inputs[at]) own.readers[read[at]]++;
    }
    if (operands == 1) made.b = made.a;
    own.numbers[step.outputs[0]] = static_cast<int>(own.instructions.size());
    own.instructions.push_back(made);
    own.steps.push_back(step);
    open_[step.outputs[0]] = key;
    const size_t work = own.instructions.size() * arrays_[step.outputs[0]].size();
    if (own.instructions.size() == MOST_INSTRUCTIONS || own.inputs.size() + 2 > MOST_INPUTS ||
        work > MOST_WORK)
      close(groups_.find(key));
    return true;
  }

  /* Take a concatenation of different results of a group that is open: that writes the parts. */
  bool join(const Recorded& step) {
    if (!is(*step.primitive, "Concatenate") || step.inputs.size() < 2) return false;
    const auto found = open_.find(step.inputs[0]);
    if (found == open_.end() || found->second.second != step.primitive->stream().index)
      return false;
    Group& own = groups_.at(found->second);
    for (size_t at = 0; at < step.inputs.size(); at++) {
      const uint32_t place = step.inputs[at];
      const auto is_part = [&](const Recorded& join) {
        return std::ranges::find(join.inputs, place) != join.inputs.end();
      };
      if (!own.numbers.contains(place) || std::ranges::any_of(own.joins, is_part)) return false;
      if (std::find(step.inputs.begin(), step.inputs.begin() + static_cast<std::ptrdiff_t>(at),
                    place) != step.inputs.begin() + static_cast<std::ptrdiff_t>(at))
        return false;
    }
    for (const uint32_t place : step.inputs) own.readers[place]++;
    open_[step.outputs[0]] = Key(found->second);
    own.joins.push_back(step);
    return true;
  }

  /* Where a slice of this shape begins, whose place becomes that of what is sliced; or {}. */
  mx::Shape begin_of(uint32_t& place, const mx::Shape& shape) const {
    const auto made = makers_.find(place);
    if (made == makers_.end() || arrays_[place].shape() != shape) return {};
    const std::optional<Range> range = range_of(*made->second->primitive);
    if (!range) return {};
    place = made->second->inputs[0];
    return range->begin;
  }

  /* Let a fused operation write the parts of a concatenation as its next output. */
  static void write_parts(const Recorded& join, const Group& group, Plan& plan, Recorded& made) {
    const auto along = static_cast<const mx::Concatenate&>(*join.primitive).state();
    const mx::Shape& own = plan.shape;
    int64_t behind = 1;
    for (auto axis = own.size(); axis-- > static_cast<size_t>(along) + 1;) behind *= own[axis];
    const auto side = static_cast<size_t>(along);
    const int64_t width = own[side] * behind, pitch = join.shapes[0][side] * behind;
    int64_t offset = 0;
    for (const uint32_t place : join.inputs) {
      const int value = plan.inputs + group.numbers.at(place);
      plan.parts.push_back({value, static_cast<int>(made.outputs.size()), offset, width, pitch});
      offset += width;
    }
    made.outputs.push_back(join.outputs[0]);
    made.shapes.push_back(join.shapes[0]);
    made.dtypes.push_back(join.dtypes[0]);
  }

  /* Whether an array is a view whose elements lie apart, which would be copied first. */
  bool gaps(uint32_t place) const {
    for (auto made = makers_.find(place); made != makers_.end(); made = makers_.find(place)) {
      const Recorded& step = *made->second;
      if (!is_view(*step.primitive)) return false;
      if (makes_gaps(*step.primitive)) return true;
      place = step.inputs[0];
    }
    return false;
  }

  void close_of(uint32_t place) {
    const auto group = open_.find(place);
    if (group != open_.end()) close(groups_.find(group->second));
  }

  void close(Groups::iterator which) {
    const Group group = std::move(which->second);
    groups_.erase(which);
    for (const Recorded& step : group.steps) open_.erase(step.outputs[0]);
    for (const Recorded& step : group.joins) open_.erase(step.outputs[0]);
    const bool is_worth = arrays_[group.steps[0].outputs[0]].size() >= LARGE &&
                          std::ranges::none_of(group.inputs, [&](uint32_t at) { return gaps(at); });
    if (group.steps.size() == 1 && !is_worth && !alone_ &&
        !is_compared(group.instructions[0].code)) {
      written_.push_back(group.steps[0]);
      return;
    }
    const auto inputs = static_cast<int>(group.inputs.size());
    Plan plan{group.steps[0].shapes[0], inputs, group.instructions, {}, {}, {}};
    for (Instruction& instruction : plan.instructions)
      for (int* value : {&instruction.a, &instruction.b})
        *value = *value < 0 ? -1 - *value : *value + inputs;
    Recorded made{nullptr, group.inputs, {}, {}, {}};
    for (uint32_t& place : made.inputs) plan.begins.push_back(begin_of(place, plan.shape));
    for (size_t at = 0; at < group.steps.size(); at++) {
      const Recorded& step = group.steps[at];
      const auto readers = group.readers.find(step.outputs[0]);
      const int own = readers != group.readers.end() ? readers->second : 0;
      if (users_[step.outputs[0]] == own) continue; /* nothing else reads it */
      plan.outputs.push_back(inputs + static_cast<int>(at));
      made.outputs.push_back(step.outputs[0]);
      made.shapes.push_back(step.shapes[0]);
      made.dtypes.push_back(step.dtypes[0]);
    }
    for (const Recorded& join : group.joins) write_parts(join, group, plan, made);
    plan.place();
    made.primitive = elementwise(group.steps[0].primitive->stream(), std::move(plan));
    written_.push_back(std::move(made));
  }

  const std::vector<mx::array>& arrays_;
  const std::vector<Recorded>& steps_;
  const bool alone_; /* steps of which no other follows are fused, too */
  std::unordered_map<uint32_t, int> users_;
  std::unordered_map<uint32_t, const Recorded*> makers_;
  std::unordered_map<uint32_t, Key> open_; /* groups of places */
  Groups groups_;
  std::vector<Recorded> written_;
};

}  // namespace

void fuse(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays,
          const std::vector<uint32_t>& results, bool alone) {
  std::vector<Recorded> fused = Fusion(steps, arrays, results, alone).fused();
  steps = std::move(fused);
}

}  // namespace cowmlx
