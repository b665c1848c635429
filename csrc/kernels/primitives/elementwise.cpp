/* Fuses elementwise steps of a recording, of float32, into one operation, whose intermediate
 * results lie in blocks that stay in a core's nearest cache. */
#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "functions.h"
#include "recording.h"

namespace cowmlx {
namespace {

constexpr int BLOCK = 256;                /* numbers of a value that are computed at a time */
constexpr int64_t CHUNK_WORK = 1 << 15;   /* numbers of all values of a chunk: some µs */
constexpr size_t MOST_INSTRUCTIONS = 512; /* of an operation */
constexpr size_t MOST_WORK = 1 << 24;     /* numbers of all of them: nothing ends it midway */
constexpr size_t MOST_INPUTS = 64;
constexpr size_t LARGE = 1 << 12; /* numbers of an operation that is worth several threads */

/* Values are numbered: first the inputs, then the result of each instruction. */
struct Instruction {
  Code code;
  int a, b;
};

/* The instructions of a fused operation. */
struct Plan {
  int inputs;
  std::vector<Instruction> instructions;
  std::vector<int> outputs; /* values */
  std::vector<int> slots;   /* of each instruction: where its block is; -1: in an output */
  std::vector<int> results; /* of each instruction: which output it is; -1: none */
  std::vector<int> reads;   /* the last instruction that reads each input */
  int count = 0;            /* of slots */

  /* Let blocks be used again once nothing reads them any more. */
  void place() {
    std::vector<int> last(instructions.size(), -1), free;
    reads.assign(static_cast<size_t>(inputs), -1);
    results.assign(instructions.size(), -1);
    slots.assign(instructions.size(), -1);
    for (size_t at = 0; at < instructions.size(); at++)
      for (const int value : {instructions[at].a, instructions[at].b})
        (value < inputs ? reads[static_cast<size_t>(value)]
                        : last[static_cast<size_t>(value - inputs)]) = static_cast<int>(at);
    for (size_t output = 0; output < outputs.size(); output++)
      results[static_cast<size_t>(outputs[output] - inputs)] = static_cast<int>(output);
    for (size_t at = 0; at < instructions.size(); at++) {
      if (results[at] < 0) {
        if (free.empty()) free.push_back(count++);
        slots[at] = free.back();
        free.pop_back();
      }
      for (const int value : {instructions[at].a, instructions[at].b}) {
        if (value < inputs) continue;
        const auto made = static_cast<size_t>(value - inputs);
        if (last[made] != static_cast<int>(at) || slots[made] < 0) continue;
        free.push_back(slots[made]);
        last[made] = -1; /* free it once if both are this value */
      }
    }
  }
};

/* How an input is broadcast to the shape of the results: each run of `inner` numbers is repeated
 * `repeat` times before the next run. */
struct Spread {
  int64_t inner, repeat;
};

/* None if the broadcast axes are not adjacent. */
std::optional<Spread> spread(const mx::Shape& own, const mx::Shape& all) {
  if (own.size() > all.size()) return std::nullopt;
  const auto missing = all.size() - own.size();
  Spread found{1, 1};
  bool is_behind = false; /* another axis follows the repeated ones */
  for (size_t axis = all.size(); axis-- > 0;) {
    const int64_t side = all[axis], mine = axis < missing ? 1 : own[axis - missing];
    if (side == 1 && mine == 1) continue;
    if (mine == 1) {
      if (is_behind) return std::nullopt;
      found.repeat *= side;
    } else if (mine != side) {
      return std::nullopt;
    } else if (found.repeat == 1) {
      found.inner *= side;
    } else {
      is_behind = true;
    }
  }
  return found;
}

/* An input: as many numbers as the results have, or fewer, which repeat. */
struct Source {
  std::optional<Copy> copy;
  const float* data;
  int64_t size;
  Spread spread;

  /* Whether all its blocks are equal. */
  bool is_steady() const { return size == spread.inner && BLOCK % size == 0; }
};

struct Job {
  std::shared_ptr<const Plan> plan;
  Functions compute;
  std::vector<Source> sources;
  std::vector<float*> outputs;
  float* scratch; /* blocks of each worker: slots, then inputs */
  int64_t size, chunk;
  int workers;

  /* Numbers [first, first + n) of an input, in a block unless they lie side by side. The block of
   * a steady input is filled when a worker begins a chunk, whose first block is its longest. */
  const float* read(const Source& source, int64_t first, int n, float* block, bool begins) const {
    const auto [inner, repeat] = source.spread;
    if (repeat == 1) return source.data + first;
    if (source.is_steady() && !begins) return block;
    for (int done = 0; done < n;) {
      const int64_t at = first + done, run = at / inner;
      const float* from = source.data + run / repeat * inner + at % inner;
      if (inner == 1) {
        const auto part = static_cast<int>(std::min<int64_t>(n - done, repeat - run % repeat));
        std::fill_n(block + done, part, *from);
        done += part;
      } else {
        const auto part = static_cast<int>(std::min<int64_t>(n - done, inner - at % inner));
        std::copy_n(from, part, block + done);
        done += part;
      }
    }
    return block;
  }

  void block(int64_t first, int n, float* own, const float** values, bool begins) const {
    const auto inputs = static_cast<size_t>(plan->inputs);
    float* next = own + int64_t{plan->count} * BLOCK;
    for (size_t input = 0; input < inputs; input++, next += BLOCK)
      values[input] = read(sources[input], first, n, next, begins);
    for (size_t at = 0; at < plan->instructions.size(); at++) {
      const Instruction& does = plan->instructions[at];
      float* to = plan->results[at] >= 0 ? outputs[static_cast<size_t>(plan->results[at])] + first
                                         : own + int64_t{plan->slots[at]} * BLOCK;
      compute(does.code, values[does.a], values[does.b], n, to);
      values[inputs + at] = to;
    }
  }

  void operator()() const {
    for (const Source& source : sources)
      if (source.copy) source.copy->run();
    const int64_t room = (plan->count + int64_t{plan->inputs}) * BLOCK;
    share(static_cast<int>((size + chunk - 1) / chunk), workers, [&](int index, int worker) {
      const float* values[MOST_INPUTS + MOST_INSTRUCTIONS];
      const int64_t begin = index * chunk, end = std::min(begin + chunk, size);
      for (int64_t first = begin; first < end; first += BLOCK)
        block(first, static_cast<int>(std::min<int64_t>(BLOCK, end - first)),
              scratch + worker * room, values, first == begin);
    });
  }
};

class Elementwise : public Operations, public Several {
 public:
  Elementwise(mx::Stream stream, Plan plan)
      : Operations(stream), plan_(std::make_shared<const Plan>(std::move(plan))) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    Job job{plan_, functions(), {}, {}, nullptr, 0, 0, threads()};
    for (const mx::array& input : inputs) {
      encoder.set_input_array(input);
      Source source{};
      source.data = lying(input, encoder, source.copy);
      source.size = static_cast<int64_t>(input.size());
      source.spread = *spread(input.shape(), outputs[0].shape());
      job.sources.push_back(std::move(source));
    }
    std::vector<bool> taken(inputs.size());
    for (size_t at = 0; at < outputs.size(); at++) {
      allocate(inputs, job.sources, taken, outputs[at], plan_->outputs[at] - plan_->inputs);
      encoder.set_output_array(outputs[at]);
      job.outputs.push_back(outputs[at].data<float>());
    }
    job.size = static_cast<int64_t>(outputs[0].size());
    const auto count = static_cast<int64_t>(plan_->instructions.size());
    job.chunk = std::max<int64_t>(CHUNK_WORK / count, BLOCK) / BLOCK * BLOCK;
    job.scratch =
        temporary<float>(encoder, job.workers * (plan_->count + int64_t{plan_->inputs}) * BLOCK);
    dispatch(encoder, std::move(job));
  }

  const char* name() const override { return "CowmlxElementwise"; }

  size_t operations() const override { return plan_->instructions.size(); }

 private:
  /* In the memory of an input that nothing else needs, and that is not read after an instruction
   * has written the output there. */
  void allocate(const Arrays& inputs, const std::vector<Source>& sources, std::vector<bool>& taken,
                mx::array& out, int instruction) const {
    for (size_t at = 0; at < inputs.size(); at++) {
      const mx::array& input = inputs[at];
      if (taken[at] || sources[at].copy || input.shape() != out.shape()) continue;
      if (plan_->reads[at] > instruction || !input.is_donatable()) continue;
      taken[at] = true;
      return out.copy_shared_buffer(input);
    }
    out.set_data(mx::allocator::malloc(out.nbytes()));
  }

  std::shared_ptr<const Plan> plan_;
};

/* Steps that become one. Nothing outside of it that was written needs a result of it. */
struct Group {
  std::vector<Recorded> steps;
  std::vector<Instruction> instructions; /* whose inputs are below 0: -1 - their number */
  std::vector<uint32_t> inputs;
  std::unordered_map<uint32_t, int> numbers; /* of instructions, by the place of their result */
  std::unordered_map<uint32_t, int> readers; /* instructions that read a place */

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
      if (!add(step)) {
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
    const bool is_worth = arrays_[group.steps[0].outputs[0]].size() >= LARGE &&
                          std::ranges::none_of(group.inputs, [&](uint32_t at) { return gaps(at); });
    if (group.steps.size() == 1 && !is_worth && !alone_ &&
        !is_compared(group.instructions[0].code)) {
      written_.push_back(group.steps[0]);
      return;
    }
    const auto inputs = static_cast<int>(group.inputs.size());
    Plan plan{inputs, group.instructions, {}, {}, {}, {}, 0};
    for (Instruction& instruction : plan.instructions)
      for (int* value : {&instruction.a, &instruction.b})
        *value = *value < 0 ? -1 - *value : *value + inputs;
    Recorded made{nullptr, group.inputs, {}, {}, {}};
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
    plan.place();
    made.primitive =
        std::make_shared<Elementwise>(group.steps[0].primitive->stream(), std::move(plan));
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
