#include "elementwise.h"

#include <algorithm>

#include "row_batch.h"
#include "recording.h"

namespace cowmlx {
namespace {

constexpr int BLOCK = 256;              /* numbers of a value that are computed at a time */
constexpr int64_t CHUNK_WORK = 1 << 15; /* numbers of all values of a chunk: some µs */

/* Rows of numbers side by side, `pitch` numbers apart. */
struct Rows {
  int64_t width, pitch;
};

constexpr int64_t LEAST_WIDTH = 16; /* of rows that are not copied before */

/* None if a shape with such strides lies otherwise, or its rows are short. */
std::optional<Rows> rows_of(const mx::Shape& shape, const mx::Strides& strides) {
  size_t axis = shape.size();
  int64_t width = 1;
  for (; axis > 0 && (shape[axis - 1] == 1 || strides[axis - 1] == width); axis--)
    width *= shape[axis - 1];
  if (axis == 0) return Rows{width, width};
  if (width < LEAST_WIDTH) return std::nullopt;
  const Rows rows{width, strides[axis - 1]};
  for (int64_t next = rows.pitch; axis > 0; axis--) {
    if (shape[axis - 1] == 1) continue;
    if (strides[axis - 1] != next) return std::nullopt;
    next *= shape[axis - 1];
  }
  return rows;
}

/* A slice of an array, from `begin` on. */
mx::array sliced(const mx::array& array, const mx::Shape& begin, const mx::Shape& shape) {
  mx::array made(shape, array.dtype(), nullptr, std::vector<mx::array>{});
  int64_t offset = 0;
  for (size_t axis = 0; axis < begin.size(); axis++) offset += begin[axis] * array.strides()[axis];
  made.copy_shared_buffer(array, array.strides(), {}, made.size(), offset);
  return made;
}

/* An input: as many numbers as the results have, or fewer, which repeat. */
struct Source {
  std::optional<Copy> copy;
  std::optional<Rows> rows; /* which are read where they are; without it, all lie side by side */
  const float* data;
  int64_t size;
  Spread spread;

  Source(const mx::array& input, const mx::Shape& begin, const mx::Shape& all,
         mx::cpu::CommandEncoder& encoder)
      : size(1), spread{1, 1} {
    const bool is_sliced = !begin.empty();
    if (!is_sliced) spread = *cowmlx::spread(input.shape(), all);
    if (is_sliced) {
      lie_apart(sliced(input, begin, all), encoder);
    } else if (!input.flags().row_contiguous && spread.repeat == 1) {
      lie_apart(input, encoder);
    } else {
      size = static_cast<int64_t>(input.size());
      data = lying(input, encoder, copy);
    }
  }

  void lie_apart(const mx::array& input, mx::cpu::CommandEncoder& encoder) {
    size = static_cast<int64_t>(input.size());
    rows = rows_of(input.shape(), input.strides());
    data = rows ? input.data<float>() : lying(input, encoder, copy);
  }

  /* Whether all its blocks are equal. */
  bool is_steady() const { return size == spread.inner && BLOCK % size == 0; }
};

/* Where numbers [first, first + n) are in rows, if they lie side by side; else null. */
template <class T>
T* beside(T* data, const Rows& rows, int64_t first, int n) {
  const int64_t row = first / rows.width, column = first % rows.width;
  return column + n <= rows.width ? data + row * rows.pitch + column : nullptr;
}

/* Call a function with each run of numbers [first, first + n) that lie side by side: where it is,
 * how many there are before, and its length. */
template <class F>
void each_run(const Rows& rows, int64_t first, int n, F&& run) {
  for (int done = 0; done < n;) {
    const int64_t row = (first + done) / rows.width, column = (first + done) % rows.width;
    const auto part = static_cast<int>(std::min<int64_t>(n - done, rows.width - column));
    run(row * rows.pitch + column, done, part);
    done += part;
  }
}

struct Job {
  std::shared_ptr<const Plan> plan;
  Functions compute;
  std::vector<Source> sources{};
  std::vector<float*> outputs{};
  float* scratch = nullptr; /* blocks of each worker: slots, then inputs */
  int64_t size = 1, chunk = 0;
  int workers;

  /* Chunks of some µs, as many for each worker where there are few. */
  void cut() {
    for (const int side : plan->shape) size *= side;
    const auto count = static_cast<int64_t>(plan->instructions.size());
    const int64_t most = std::max<int64_t>(CHUNK_WORK / count, BLOCK);
    int64_t chunks = (size + most - 1) / most;
    if (chunks > 1) chunks = (chunks + workers - 1) / workers * workers;
    chunk = ((size + chunks - 1) / chunks + BLOCK - 1) / BLOCK * BLOCK;
  }

  /* Numbers [first, first + n) of an input, in a block unless they lie side by side. The block of
   * a steady input is filled when a worker begins a chunk, whose first block is its longest. */
  const float* read(const Source& source, int64_t first, int n, float* block, bool begins) const {
    if (source.rows) {
      const float* found = beside(source.data, *source.rows, first, n);
      if (found != nullptr) return found;
      each_run(*source.rows, first, n, [&](int64_t at, int done, int part) {
        std::copy_n(source.data + at, part, block + done);
      });
      return block;
    }
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
      const Part* part = plan->written[at] >= 0 ? &plan->parts[size_t(plan->written[at])] : nullptr;
      float* to = plan->results[at] >= 0 ? outputs[static_cast<size_t>(plan->results[at])] + first
                                         : own + int64_t{plan->slots[at]} * BLOCK;
      compute(does.code, values[does.a], values[does.b], n, to);
      values[inputs + at] = to;
      if (part != nullptr) write(*part, first, n, to);
    }
  }

  void write(const Part& part, int64_t first, int n, const float* from) const {
    float* to = outputs[static_cast<size_t>(part.output)] + part.offset;
    each_run({part.width, part.pitch}, first, n,
             [&](int64_t at, int done, int count) { std::copy_n(from + done, count, to + at); });
  }

  void run(int64_t begin, int64_t end, int worker) const {
    const float* values[MOST_INPUTS + MOST_INSTRUCTIONS];
    const int64_t room = (plan->count + int64_t{plan->inputs}) * BLOCK;
    for (int64_t first = begin; first < end; first += BLOCK)
      block(first, static_cast<int>(std::min<int64_t>(BLOCK, end - first)), scratch + worker * room,
            values, first == begin);
  }

  void rows(int64_t begin, int64_t end, int worker) const {
    const int64_t row = size / plan->shape[0];
    run(begin * row, end * row, worker);
  }

  void operator()() const {
    for (const Source& source : sources)
      if (source.copy) source.copy->run();
    share(static_cast<int>((size + chunk - 1) / chunk), workers, [&](int index, int worker) {
      run(index * chunk, std::min((index + 1) * chunk, size), worker);
    });
  }
};

class Elementwise : public Operations, public Several {
 public:
  Elementwise(mx::Stream stream, Plan plan)
      : Operations(stream), plan_(std::make_shared<const Plan>(std::move(plan))) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    Job job{.plan = plan_, .compute = functions(), .workers = threads()};
    job.cut();
    job.sources.reserve(inputs.size());
    job.outputs.reserve(outputs.size());
    for (size_t at = 0; at < inputs.size(); at++) {
      encoder.set_input_array(inputs[at]);
      job.sources.emplace_back(inputs[at], plan_->begins[at], plan_->shape, encoder);
    }
    std::vector<bool> taken(inputs.size());
    for (size_t at = 0; at < outputs.size(); at++) {
      if (at < plan_->outputs.size())
        allocate(inputs, job.sources, taken, outputs[at], plan_->outputs[at] - plan_->inputs);
      else
        outputs[at].set_data(mx::allocator::malloc(outputs[at].nbytes()));
      encoder.set_output_array(outputs[at]);
      job.outputs.push_back(outputs[at].data<float>());
    }
    job.scratch =
        temporary<float>(encoder, job.workers * (plan_->count + int64_t{plan_->inputs}) * BLOCK);
    const int64_t rows = rows_of_all(job.sources, outputs);
    dispatch_rows(encoder, reads(inputs), outputs, rows, std::move(job));
  }

  const char* name() const override { return "CowmlxElementwise"; }

  size_t operations() const override { return plan_->instructions.size(); }

 private:
  /* How many rows can be computed one without the others; 0: none. */
  int64_t rows_of_all(const std::vector<Source>& sources, const Arrays& outputs) const {
    const mx::Shape& shape = plan_->shape;
    const auto is_whole = [&](const mx::array& one) { return one.shape(0) != shape[0]; };
    if (shape.size() < 2 || std::ranges::any_of(outputs, is_whole)) return 0;
    if (std::ranges::any_of(sources, [](const Source& one) { return one.copy.has_value(); }))
      return 0;
    return shape[0];
  }

  Reads reads(const Arrays& inputs) const {
    Reads found;
    for (const mx::array& input : inputs) {
      const bool has_rows = input.ndim() == plan_->shape.size() && input.ndim() > 0 &&
                            input.shape(0) == plan_->shape[0];
      (has_rows ? found.rows : found.whole).push_back(&input);
    }
    return found;
  }

  /* In the memory of an input that nothing else needs, and that is not read after an instruction
   * has written the output there. */
  void allocate(const Arrays& inputs, const std::vector<Source>& sources, std::vector<bool>& taken,
                mx::array& out, int instruction) const {
    for (size_t at = 0; at < inputs.size(); at++) {
      const mx::array& input = inputs[at];
      const bool lies_apart = sources[at].copy || sources[at].rows;
      if (taken[at] || lies_apart || input.shape() != out.shape()) continue;
      if (plan_->reads[at] > instruction || !input.is_donatable()) continue;
      taken[at] = true;
      /* Not the input's own strides of sides of 1: a BLAS would read these as another order. */
      return out.copy_shared_buffer(input, out.strides(), input.flags(), input.data_size());
    }
    out.set_data(mx::allocator::malloc(out.nbytes()));
  }

  std::shared_ptr<const Plan> plan_;
};

}  // namespace

void Plan::place() {
  std::vector<int> last(instructions.size(), -1), free;
  reads.assign(static_cast<size_t>(inputs), -1);
  results.assign(instructions.size(), -1);
  written.assign(instructions.size(), -1);
  slots.assign(instructions.size(), -1);
  for (size_t at = 0; at < instructions.size(); at++)
    for (const int value : {instructions[at].a, instructions[at].b})
      (value < inputs ? reads[static_cast<size_t>(value)]
                      : last[static_cast<size_t>(value - inputs)]) = static_cast<int>(at);
  for (size_t output = 0; output < outputs.size(); output++)
    results[static_cast<size_t>(outputs[output] - inputs)] = static_cast<int>(output);
  for (size_t part = 0; part < parts.size(); part++)
    written[static_cast<size_t>(parts[part].value - inputs)] = static_cast<int>(part);
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
    if (last[at] < 0 && slots[at] >= 0) free.push_back(slots[at]); /* a part alone */
  }
}

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

std::shared_ptr<mx::Primitive> elementwise(mx::Stream stream, Plan plan) {
  return std::make_shared<Elementwise>(stream, std::move(plan));
}

}  // namespace cowmlx
