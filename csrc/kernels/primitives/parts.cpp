/* Slices and concatenations of a recording move to where fused operations read and write them. */
#include <optional>
#include <unordered_map>

#include "functions.h"
#include "recording.h"

namespace cowmlx {
namespace {

/* Slices of a function's result that are moved, at most, and numbers of their lines, at least: each
 * becomes a separate function, and short lines are copied before they are read. */
constexpr size_t MOST_SLICES = 8;
constexpr int LEAST_WIDTH = 16;

/* Goes through the steps from the last one on, so that all readers of a result are known. */
class Moving {
 public:
  Moving(std::vector<Recorded>& steps, std::vector<mx::array>& arrays,
         const std::vector<uint32_t>& results)
      : steps_(steps), arrays_(arrays), is_result_(arrays.size()) {
    for (const uint32_t place : results) is_result_[place] = true;
  }

  void run() {
    for (size_t at = steps_.size(); at-- > 0;) {
      Recorded& step = steps_[at];
      if (move_split(step) || move_function(step) || move_concatenation(step)) continue;
      move_broadcast(step);
      append(std::move(step));
    }
    std::ranges::reverse(done_);
    steps_ = std::move(done_);
  }

 private:
  void append(Recorded step) {
    for (const uint32_t place : step.inputs) readers_[place].push_back(done_.size());
    done_.push_back(std::move(step));
  }

  /* Append the step that makes an array of arrays with places, by a function of mlx. */
  uint32_t append(const mx::array& made, std::vector<uint32_t> inputs) {
    const auto place = static_cast<uint32_t>(arrays_.size());
    arrays_.push_back(made);
    append({made.primitive_ptr(), std::move(inputs), {place}, {made.shape()}, {made.dtype()}});
    return place;
  }

  /* Let a later step be another one, whose inputs have been appended. */
  void replace(size_t later, std::shared_ptr<mx::Primitive> primitive,
               std::vector<uint32_t> inputs) {
    for (const uint32_t place : inputs) readers_[place].push_back(later);
    done_[later].primitive = std::move(primitive);
    done_[later].inputs = std::move(inputs);
  }

  uint32_t sliced(uint32_t place, const Range& range, mx::Stream stream) {
    const mx::array made = mx::slice(arrays_[place], range.begin, range.end, stream);
    return made.id() == arrays_[place].id() ? place : append(made, {place});
  }

  /* A split is slices. */
  bool move_split(const Recorded& step) {
    if (!is(*step.primitive, "Split") || step.outputs.size() < 2) return false;
    const auto [ends, axis] = static_cast<const mx::Split&>(*step.primitive).state();
    const mx::array whole = arrays_[step.inputs[0]];
    for (const mx::Shape& shape : step.shapes)
      if (shape == whole.shape() || shape[axis] == 0) return false;
    for (size_t at = 0; at < step.outputs.size(); at++) {
      Range range{mx::Shape(whole.ndim(), 0), whole.shape()};
      if (at > 0) range.begin[axis] = ends[at - 1];
      if (at < ends.size()) range.end[axis] = ends[at];
      const mx::array made = mx::slice(whole, range.begin, range.end, step.primitive->stream());
      append({made.primitive_ptr(),
              step.inputs,
              {step.outputs[at]},
              {step.shapes[at]},
              {step.dtypes[at]}});
    }
    return true;
  }

  /* A function of numbers of which only a few wide slices are read: slices of its operands come
   * first, so that it can be fused with what reads them. */
  bool move_function(const Recorded& step) {
    if (!is_function(step)) return false;
    const std::vector<size_t> readers = readers_[step.outputs[0]];
    size_t size = 0;
    for (const size_t reader : readers) {
      const mx::array& slice = arrays_[done_[reader].outputs[0]];
      if (!range_of(*done_[reader].primitive) || slice.shape(-1) < LEAST_WIDTH) return false;
      size += slice.size();
    }
    if (readers.empty() || readers.size() > MOST_SLICES || size > arrays_[step.outputs[0]].size())
      return false;
    for (const size_t reader : readers) {
      const Range range = *range_of(*done_[reader].primitive);
      std::vector<uint32_t> inputs;
      for (size_t at = 0; at < step.inputs.size(); at++) {
        const bool is_same = at > 0 && step.inputs[at] == step.inputs[0];
        inputs.push_back(is_same ? inputs[0]
                                 : sliced(step.inputs[at], range, step.primitive->stream()));
      }
      replace(reader, step.primitive, std::move(inputs));
    }
    return true;
  }

  bool is_function(const Recorded& step) const {
    const std::optional<Code> code = code_of(*step.primitive);
    if (!code || is_compared(*code) || step.dtypes[0] != mx::float32) return false;
    if (step.outputs.size() != 1 || is_result(step.outputs[0])) return false;
    return std::ranges::all_of(step.inputs, [&](uint32_t place) {
      return arrays_[place].shape() == step.shapes[0] && arrays_[place].dtype() == mx::float32;
    });
  }

  bool is_result(uint32_t place) const { return place < is_result_.size() && is_result_[place]; }

  /* Slices of what is broadcast are broadcast slices. */
  void move_broadcast(const Recorded& step) {
    if (!is(*step.primitive, "Broadcast")) return;
    const std::vector<size_t> readers = readers_[step.outputs[0]];
    const mx::Stream stream = step.primitive->stream();
    for (const size_t reader : readers) {
      std::optional<Range> range = range_of(*done_[reader].primitive);
      if (!range) continue;
      const mx::array own = arrays_[step.inputs[0]];
      const auto missing = static_cast<std::ptrdiff_t>(step.shapes[0].size() - own.ndim());
      for (mx::Shape* side : {&range->begin, &range->end})
        side->erase(side->begin(), side->begin() + missing);
      for (size_t axis = 0; axis < own.ndim(); axis++) {
        if (own.shape(static_cast<int>(axis)) != 1) continue;
        range->begin[axis] = 0;
        range->end[axis] = 1;
      }
      const mx::array part = mx::slice(own, range->begin, range->end, stream);
      const mx::array spread = mx::broadcast_to(part, done_[reader].shapes[0], stream);
      if (part.id() == own.id() && spread.id() == own.id()) continue;
      std::erase(readers_[step.outputs[0]], reader);
      if (spread.id() == part.id()) {
        replace(reader, part.primitive_ptr(), step.inputs);
      } else {
        const uint32_t from = sliced(step.inputs[0], *range, stream);
        replace(reader, spread.primitive_ptr(), {from});
      }
    }
  }

  /* A concatenation whose other order of axes alone is read, with the same last axis, is one of
   * parts of that order: it is written as it is read. */
  bool move_concatenation(const Recorded& step) {
    if (!is(*step.primitive, "Concatenate") || is_result(step.outputs[0])) return false;
    const std::vector<size_t> readers = readers_[step.outputs[0]];
    if (readers.size() != 1 || !is(*done_[readers[0]].primitive, "Transpose")) return false;
    const auto axes = static_cast<const mx::Transpose&>(*done_[readers[0]].primitive).state();
    const int along = static_cast<const mx::Concatenate&>(*step.primitive).state();
    const auto last = static_cast<int>(axes.size()) - 1;
    const auto found = std::ranges::find(axes, along);
    if (last < 1 || axes[static_cast<size_t>(last)] != last || found == axes.end()) return false;
    const mx::Stream stream = step.primitive->stream();
    std::vector<mx::array> parts;
    std::vector<uint32_t> inputs;
    for (const uint32_t place : step.inputs) {
      parts.push_back(mx::transpose(arrays_[place], axes, stream));
      inputs.push_back(append(parts.back(), {place}));
    }
    const auto axis = static_cast<int>(found - axes.begin());
    replace(readers[0], mx::concatenate(parts, axis, stream).primitive_ptr(), std::move(inputs));
    return true;
  }

  std::vector<Recorded>& steps_;
  std::vector<mx::array>& arrays_;
  std::vector<bool> is_result_;
  std::vector<Recorded> done_;                                /* from the last one on */
  std::unordered_map<uint32_t, std::vector<size_t>> readers_; /* in `done_`, of a place */
};

}  // namespace

/* mlx exports no types of these primitives, only the layout of their members. */
std::optional<Range> range_of(const mx::Primitive& primitive) {
  if (!is(primitive, "Slice")) return std::nullopt;
  const auto [begin, end, steps] = static_cast<const mx::Slice&>(primitive).state();
  if (std::ranges::any_of(steps, [](auto step) { return step != 1; })) return std::nullopt;
  return Range{begin, end};
}

void move_parts(std::vector<Recorded>& steps, std::vector<mx::array>& arrays,
                const std::vector<uint32_t>& results) {
  Moving(steps, arrays, results).run();
}

}  // namespace cowmlx
