/* Arrays that are computed in parts. mlx starts a whole graph at once, and waits for its streams
 * when more than a few tasks are active, so the caller of a long graph waits for most of it. */

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "mlx/array.h"
#include "mlx/event.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "mlx/scheduler.h"
#include "mlx/stream.h"
#include "mlx/transforms.h"

#include "primitives/operation.h"
#include "recording.h"

namespace cowmlx {
namespace {

namespace mx = mlx::core;
namespace nb = nanobind;
using namespace nb::literals;
using Clock = std::chrono::steady_clock;

/* mlx counts a task for ten steps of a stream and waits from eleven tasks on, those of other
 * streams included. An operation takes about two steps, and one more for each input to be copied.
 * Operations on few elements end so soon that mlx may wait for them. */
constexpr size_t PART_STEPS = 30;
constexpr size_t FEW_ELEMENTS = 4096;
constexpr size_t FEW_PER_STEP = 8;
/* A GPU's task is some 40 operations, or fewer that together have 40 MB: a part has three tasks. */
constexpr size_t GPU_TASK = 40;
constexpr size_t PER_GPU_OPERATION = PART_STEPS * FEW_PER_STEP / (3 * GPU_TASK);
constexpr size_t MAX_PARTS = 3;
constexpr int MAX_TASKS = 5;
/* The longest call; how long waiting yields, and then sleeps. */
constexpr std::chrono::microseconds CALL{4000}, YIELDS{100}, MIN_SLEEP{20}, MAX_SLEEP{500};

/* Operations that take long for their number of elements. */
constexpr std::array<std::string_view, 8> LONG = {"Cholesky", "Eig", "Eigh", "Inverse",
                                                  "LUF",      "QRF", "SVD",  "Matmul"};

/* Arrays that were computed together with one that failed, by their ids; they are kept while anyone
 * has them, so that no other array gets the id. mlx reports a failure once, and then takes all that
 * was under way for computed. Used by the dispatch thread alone. */
std::unordered_map<uintptr_t, mx::array>& spoiled() {
  static auto& arrays = *new std::unordered_map<uintptr_t, mx::array>;
  return arrays;
}

constexpr char SPOILED[] = "[cowmlx] an array was computed together with one that failed";

void require_sound(const mx::array& array) {
  if (!spoiled().empty() && spoiled().contains(array.id())) throw std::runtime_error(SPOILED);
}

/* Operations that allocate memory while they compute. The others do so before they are started. */
constexpr std::array<std::string_view, 9> ALLOCATING = {"Cholesky", "Eig", "Eigh", "Inverse", "LUF",
                                                        "Load",     "QRF", "SVD",  "Sort"};

/* Whether an exception is of an operation that could not be started, so that those before it are
 * computed. */
bool is_early(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         std::string_view(error.what()).starts_with("[malloc");
}

/* What an operation counts in a part. */
size_t steps_of(const mx::array& array) {
  const auto* several = dynamic_cast<const Several*>(&array.primitive());
  const size_t operations = several == nullptr ? 1 : several->operations();
  const size_t steps = operations * FEW_PER_STEP * (2 + array.inputs().size());
  size_t elements = array.size();
  for (const mx::array& input : array.inputs()) elements = std::max(elements, input.size());
  const std::string_view name = array.primitive().name();
  const bool is_long = std::find(LONG.begin(), LONG.end(), name) != LONG.end();
  return elements > FEW_ELEMENTS || is_long ? steps : steps / FEW_PER_STEP;
}

/* Likewise on a GPU. */
size_t gpu_steps_of(const mx::array& array) {
  size_t bytes = array.nbytes();
  for (const mx::array& input : array.inputs()) bytes += input.nbytes();
  return PER_GPU_OPERATION * std::clamp<size_t>(bytes >> 20, 1, GPU_TASK);
}

class Evaluation {
 public:
  Evaluation(std::vector<mx::array> arrays, bool as_gpu)
      : arrays_(std::move(arrays)), as_gpu_(as_gpu) {
    std::erase_if(spoiled(), [](const auto& entry) { return entry.second.is_donatable(); });
  }

  size_t started() const { return visited_.size(); }

  bool advance(bool waits) {
    try {
      return proceed(waits);
    } catch (const std::exception& error) {
      is_late_ = allocates_late_ || !is_early(error);
      throw;
    }
  }

  /* Decide about the arrays that were under way when this has failed. Where an operation could not
   * be started, those before it are computed, but mlx has not signalled it. */
  void settle(const std::vector<mx::array>& holders) {
    for (const mx::Stream& stream : streams_) {
      try {
        mx::synchronize(stream);
        /* an operation that could not be started leaves its buffers there until the next one */
        if (stream.device == mx::Device::cpu)
          mx::cpu::get_command_encoder(stream).temporaries().clear();
      } catch (const std::exception&) {
        is_late_ = true;
      }
    }
    std::unordered_set<uintptr_t> seen;
    std::vector<mx::array> waiting(holders);
    waiting.insert(waiting.end(), arrays_.begin(), arrays_.end());
    while (!waiting.empty()) {
      const mx::array array = std::move(waiting.back());
      waiting.pop_back();
      if (!seen.insert(array.id()).second) continue;
      const bool is_lazy = array.status() == mx::array::Status::unscheduled;
      if (is_lazy) waiting.insert(waiting.end(), array.inputs().begin(), array.inputs().end());
      if (!visited_.contains(array.id())) continue;
      if (is_lazy || !is_late_) array.attach_event(mx::Event{});
      if (!is_lazy && !is_late_) array.set_status(mx::array::Status::available);
      if (!is_lazy && is_late_) spoiled().emplace(array.id(), array);
    }
    arrays_.clear();
  }

 private:
  bool proceed(bool waits) {
    const auto end = Clock::now() + CALL;
    auto progress = Clock::now();
    auto pause = MIN_SLEEP;
    while (Clock::now() < end) {
      if (has_room()) {
        if (std::vector<mx::array> part = next_part(); !part.empty()) {
          start(std::move(part));
          progress = Clock::now();
          pause = MIN_SLEEP;
          continue;
        }
        if (is_computed()) {
          for (const mx::Stream& stream : streams_) check(stream);
          return true;
        }
      }
      if (!waits) return false;
      if (Clock::now() - progress < YIELDS) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 3 / 2, MAX_SLEEP);
      }
    }
    return false;
  }

  /* Raise a stream's failure. A GPU's is raised by the array that is asked for; for its stream mlx
   * would start a thread. */
  static void check(const mx::Stream& stream) {
    if (stream.device == mx::Device::cpu) mx::scheduler::check_error(stream);
  }

  /* An array that is not started, and how many of its inputs are. */
  struct Place {
    mx::array array;
    size_t inputs;
  };

  bool has_room() {
    while (!parts_.empty() && parts_.front().is_available()) parts_.pop_front();
    if (parts_.empty()) return true;
    return parts_.size() < MAX_PARTS && mx::scheduler::n_active_tasks() < MAX_TASKS;
  }

  bool is_computed() const {
    return std::all_of(arrays_.begin(), arrays_.end(),
                       [](const mx::array& array) { return array.is_available(); });
  }

  /* The arrays at the end of the next part; none if all is started. Nothing else of the part is
   * held, so mlx can compute in place. */
  std::vector<mx::array> next_part() {
    std::vector<mx::array> ends;
    std::unordered_set<uintptr_t> taken, needed;
    const auto is_started = [&taken](const mx::array& array) {
      return array.status() != mx::array::Status::unscheduled || !array.has_primitive() ||
             taken.contains(array.id());
    };
    size_t steps = 0;
    while (steps < PART_STEPS * FEW_PER_STEP) {
      if (path_.empty()) {
        if (next_ == arrays_.size()) break;
        path_.push_back({arrays_[next_++], 0});
      }
      Place& place = path_.back();
      if (is_started(place.array)) { /* with a sibling, or by another call */
        require_sound(place.array);
        path_.pop_back();
      } else if (place.inputs < place.array.inputs().size()) {
        const mx::array& input = place.array.inputs()[place.inputs++];
        require_sound(input);
        if (!is_started(input)) path_.push_back({mx::array(input), 0});
      } else {
        const mx::array array = std::move(place.array);
        path_.pop_back();
        const bool on_gpu = as_gpu_ || array.primitive().device() == mx::Device::gpu;
        steps += on_gpu ? gpu_steps_of(array) : steps_of(array);
        note(array);
        taken.insert(array.id());
        for (const mx::array& sibling : array.siblings()) taken.insert(sibling.id());
        for (const mx::array& input : array.inputs()) needed.insert(input.id());
        ends.push_back(array);
      }
    }
    std::erase_if(ends, [&](const mx::array& one) { return needed.contains(one.id()); });
    return ends;
  }

  void note(const mx::array& array) {
    visited_.insert(array.id());
    for (const mx::array& sibling : array.siblings()) visited_.insert(sibling.id());
    const std::string_view name = array.primitive().name();
    allocates_late_ |= std::find(ALLOCATING.begin(), ALLOCATING.end(), name) != ALLOCATING.end();
    const mx::Stream stream = array.primitive().stream();
    if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
      streams_.push_back(stream);
    }
  }

  /* A part that is not the last gets a mark: an array that is computed after it and holds nothing
   * of it. */
  void start(std::vector<mx::array> part) {
    const mx::Stream stream = part.back().primitive().stream();
    mx::async_eval(std::move(part));
    if (path_.empty() && next_ == arrays_.size()) return;
    mx::array mark = mx::zeros({}, mx::uint8, stream);
    mx::async_eval(std::vector<mx::array>{mark});
    parts_.push_back(std::move(mark));
  }

  std::vector<mx::array> arrays_;
  bool as_gpu_;
  size_t next_ = 0;
  std::vector<Place> path_;               /* from one of the arrays to what is started next */
  std::deque<mx::array> parts_;           /* under way, by their marks */
  std::unordered_set<uintptr_t> visited_; /* ids of the arrays that were taken into a part */
  std::vector<mx::Stream> streams_;       /* theirs */
  bool allocates_late_ = false;           /* whether one of them may fail for memory late */
  bool is_late_ = false; /* whether this has failed while it computed, not before */
};

}  // namespace

bool is_sound(const mx::array& array) {
  return spoiled().empty() || !spoiled().contains(array.id());
}

void bind_evaluation(nb::module_& module) {
  nb::class_<Evaluation>(module, "Evaluation", R"(Arrays that are computed in parts.

Args:
    arrays: the arrays.
    as_gpu: whether parts are as large as a GPU's on every device, for tests.)")
      .def(nb::init<std::vector<mx::array>, bool>(), "arrays"_a, "as_gpu"_a = false)
      .def_prop_ro("started", &Evaluation::started, "How many arrays were taken into parts.")
      .def("advance", &Evaluation::advance, "waits"_a, nb::call_guard<nb::gil_scoped_release>(),
           R"(Start what can be started, for milliseconds at most.

Args:
    waits: whether the rest of that time is waited for what was started.

Returns:
    whether all is computed.)")
      .def("settle", &Evaluation::settle, "holders"_a, nb::call_guard<nb::gil_scoped_release>(),
           R"(Decide, after a failure, about the arrays that were under way.

Those that may not be computed raise an error from now on.

Args:
    holders: the arrays that others may read or compute with.)");
  module.def("is_sound", &is_sound, "array"_a,
             "Whether an array was not computed together with one that failed.");
}

}  // namespace cowmlx
