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

/* What is known of a step before it is computed. */
struct Known {
  std::vector<bool> ends; /* of each input: whether no later step reads it */
  bool is_view, is_contiguous, takes_memory, waits;

  explicit Known(const mx::Primitive& primitive)
      : is_view(cowmlx::is_view(primitive)),
        is_contiguous(is(primitive, "Contiguous")),
        takes_memory(cowmlx::takes_memory(primitive)),
        waits(may_wait(primitive)) {}

  /* Whether a view is computed as a copy: mlx would copy on its stream, behind all that is there,
   * also where "Contiguous" would keep a buffer that is much larger. */
  bool copies(const std::vector<mx::array>& inputs) const {
    return is_view && takes_memory && (is_contiguous || !inputs[0].flags().row_contiguous);
  }
};

/* Take the inputs of a step; inputs that no later step reads are given up. */
inline void take_inputs(const Recorded& step, const Known& known, Places& arrays,
                        std::vector<mx::array>& to) {
  to.reserve(step.inputs.size());
  for (size_t i = 0; i < step.inputs.size(); i++) {
    std::optional<mx::array>& array = arrays[step.inputs[i]];
    if (known.ends[i])
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
    if (made[i].has_primitive()) made[i].detach();
    made[i].set_status(mx::array::Status::available);
    arrays[step.outputs[i]] = std::move(made[i]);
  }
}

/* Steps of kernels that the caller's thread computes, one after the other. */
class Computing {
 public:
  using Clock = std::chrono::steady_clock;

  Computing(const std::vector<Recorded>& steps, const std::vector<Known>& known, Places arrays)
      : steps_(steps), known_(known), arrays_(std::move(arrays)) {}

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

  void step(RowBatch& batch) {
    const Recorded& step = steps_[at_];
    const Known& known = known_[at_];
    read_.clear();
    take_inputs(step, known, arrays_, read_);
    made_.clear();
    for (size_t i = 0; i < step.outputs.size(); i++)
      made_.emplace_back(step.shapes[i], step.dtypes[i], nullptr, std::vector<mx::array>{});
    if (known.copies(read_)) {
      batch.run();
      copy_elements(read_[0], made_[0]);
    } else if (known.is_view) {
      step.primitive->eval_cpu(read_, made_);
    } else {
      if (!known.waits) batch.run();
      auto& encoder = mx::cpu::get_command_encoder(step.primitive->stream());
      const Cleared cleared{encoder};
      step.primitive->eval_cpu(read_, made_);
      batch.keep(read_, encoder.temporaries());
    }
    put(step, made_, arrays_);
    at_++;
  }

  const std::vector<Recorded>& steps_;
  const std::vector<Known>& known_; /* of each step */
  Places arrays_;
  std::vector<mx::array> read_, made_;
  size_t at_ = 0;
  bool has_failed_ = false;
};

}  // namespace cowmlx
