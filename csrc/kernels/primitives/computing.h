/* Steps of a recording as they are computed without mlx's graph. */
#pragma once

#include <chrono>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "arrays.h"
#include "recording.h"
#include "row_batch.h"

namespace cowmlx {

/* The arrays of a recording, by their places. */
using Places = std::vector<std::optional<mx::array>>;

/* For each step and each of its inputs: whether no later step reads that input. */
using Ends = std::vector<std::vector<bool>>;

/* Take the inputs of a step; inputs that no later step reads are given up. */
inline void take_inputs(const Recorded& step, const std::vector<bool>& ends, Places& arrays,
                        std::vector<mx::array>& to) {
  to.reserve(step.inputs.size());
  for (size_t i = 0; i < step.inputs.size(); i++) {
    std::optional<mx::array>& array = arrays[step.inputs[i]];
    if (ends[i])
      to.push_back(std::move(*array));
    else
      to.push_back(*array);
  }
}

inline std::vector<mx::array> outputs_of(const Recorded& step) {
  std::vector<mx::array> made;
  made.reserve(step.outputs.size());
  for (size_t i = 0; i < step.outputs.size(); i++)
    made.emplace_back(step.shapes[i], step.dtypes[i], step.primitive, std::vector<mx::array>{});
  return made;
}

/* Put a step's outputs, which are computed or will be, into their places. */
inline void put(const Recorded& step, std::vector<mx::array>& made, Places& arrays) {
  for (size_t i = 0; i < made.size(); i++) {
    made[i].detach();
    made[i].set_status(mx::array::Status::available);
    arrays[step.outputs[i]] = std::move(made[i]);
  }
}

/* Steps of kernels that the caller's thread computes, one after the other. */
class Computing {
 public:
  using Clock = std::chrono::steady_clock;

  Computing(const std::vector<Recorded>& steps, const Ends& ends, Places arrays)
      : steps_(steps), ends_(ends), arrays_(std::move(arrays)) {}

  /* Compute steps until all are computed, or until some time has passed; whether all are. */
  bool advance(Clock::duration time) {
    if (std::exchange(has_failed_, true)) throw std::runtime_error("a step has failed before");
    const Clock::time_point begin = Clock::now();
    const Here here;
    const Series series;
    RowBatch batch;
    while (at_ < steps_.size()) {
      step(batch);
      if (Clock::now() - begin >= time) break;
    }
    batch.run();
    has_failed_ = false;
    return at_ == steps_.size();
  }

  const Places& arrays() const { return arrays_; }

 private:
  /* Gives up an operation's temporary arrays in the end, also where it fails. */
  struct Cleared {
    mx::cpu::CommandEncoder& encoder;

    ~Cleared() { encoder.temporaries().clear(); }
  };

  /* Whether a view is computed as a copy: mlx would copy on its stream, behind all that is there,
   * also where "Contiguous" would keep a buffer that is much larger. */
  static bool copies(const mx::Primitive& primitive, const std::vector<mx::array>& inputs) {
    if (!is_view(primitive) || !takes_memory(primitive)) return false;
    return !inputs[0].flags().row_contiguous || is(primitive, "Contiguous");
  }

  void step(RowBatch& batch) {
    const Recorded& step = steps_[at_];
    take_inputs(step, ends_[at_], arrays_, read_);
    std::vector<mx::array> made = outputs_of(step);
    auto& encoder = mx::cpu::get_command_encoder(step.primitive->stream());
    const Cleared cleared{encoder};
    const bool is_copied = copies(*step.primitive, read_);
    if (is_copied || !(is_view(*step.primitive) || may_wait(*step.primitive))) batch.run();
    if (is_copied) {
      copy_elements(read_[0], made[0]);
    } else {
      step.primitive->eval_cpu(read_, made);
    }
    batch.keep(read_, encoder.temporaries());
    put(step, made, arrays_);
    at_++;
  }

  const std::vector<Recorded>& steps_;
  const Ends& ends_;
  Places arrays_;
  std::vector<mx::array> read_;
  size_t at_ = 0;
  bool has_failed_ = false;
};

}  // namespace cowmlx
