/* Recorded functions: what a function of arrays does is written down once, as a list of mlx's
 * primitives, and done again for other arrays of the same shapes without asking the function.
 *
 * mlx's own compile does that too. But on a CPU it first runs "g++ --version" through a shell, and
 * keeps nothing where that fails; its mode is the whole process's; and it goes through the graph
 * recursively. */
#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include "mlx/allocator.h"
#include "mlx/device.h"
#include "mlx/stream.h"
#include "computing.h"
#include "under_way.h"

namespace cowmlx {
namespace {

/* Bytes that steps make at most where the caller computes them, or starts all of them on a stream
 * and waits: with more, what mlx's own account of a graph takes is little. */
constexpr size_t MOST_BYTES = 32 << 20;

/* Bytes of an input up to which a copy costs less than to read it where it is. */
constexpr size_t MOST_COPIED = 16 << 10;

/* Operations that write into buffers of their inputs, or share memory with others of their stream:
 * they need mlx's graph. */
bool needs_graph(const mx::Primitive& primitive) {
  return is(primitive, "CowmlxLayers") || is(primitive, "CowmlxCacheRows") ||
         is(primitive, "CowmlxEncoder");
}

class Recording {
 public:
  /* Write down what a function does with arrays like these.
   *
   * Arrays that it reads beside its inputs are kept if they have values, and built again each time
   * if they have a primitive. `steady`: most replays have the same matrices. */
  Recording(const nb::callable& function, const std::vector<mx::array>& inputs, bool steady)
      : stream_(mx::default_stream(mx::default_device())) {
    std::vector<mx::array> places;
    for (const auto& input : inputs) {
      places.emplace_back(input.shape(), input.dtype(), nullptr, std::vector<mx::array>{});
      shapes_.push_back(input.shape());
      dtypes_.push_back(input.dtype());
    }
    nb::list arguments;
    for (const auto& place : places) arguments.append(nb::cast(place));
    const auto results = nb::cast<std::vector<mx::array>>(function(*nb::tuple(arguments)));
    for (const auto& place : places) place_of(place);
    for (const auto& result : results) write(result);
    for (const auto& result : results) results_.push_back(places_.at(result.id()));
    fold_full(steps_, seen_, kept_);
    eliminate_common(steps_, kept_, count_, results_);
    remove_unread();
    if (stream_.device == mx::Device::cpu) take_products(steps_, seen_, steady);
    merge(steps_, seen_, results_);
    remove_unread();
    if (stream_.device == mx::Device::cpu) improve();
    can_start_ = !is_here_ && can_be_started();
    find_ends();
    asks_sizes_ = std::ranges::any_of(
        steps_, [](const Recorded& step) { return is(*step.primitive, "Contiguous"); });
    places_.clear();
    seen_.clear();
    same_.clear();
  }

  /* Whether it was recorded for such arrays, and for the stream that is the default now. */
  bool fits(const std::vector<mx::array>& inputs) const {
    return has_types(inputs) && stream_ == mx::default_stream(mx::default_device());
  }

  std::vector<mx::array> replay(const std::vector<mx::array>& inputs) const {
    if (!fits(inputs)) refuse("recorded for other shapes, dtypes or stream");
    Places arrays = places(inputs);
    for (const auto& step : steps_) {
      std::vector<mx::array> given = inputs_of(step, arrays);
      if (step.outputs.size() == 1) {
        arrays[step.outputs[0]].emplace(step.shapes[0], step.dtypes[0], step.primitive,
                                        std::move(given));
        continue;
      }
      const auto made = mx::array::make_arrays(step.shapes, step.dtypes, step.primitive, given);
      for (size_t i = 0; i < made.size(); i++) arrays[step.outputs[i]] = made[i];
    }
    return results(arrays);
  }

  /* Whether `compute` takes these arrays. The caller's thread computes short ones, whatever the
   * default stream is. */
  bool computes(const std::vector<mx::array>& inputs) const {
    return (is_short_ ? has_types(inputs) : can_start_ && fits(inputs)) && are_there(inputs);
  }

  /* Whether `begin` takes these arrays. */
  bool begins(const std::vector<mx::array>& inputs) const {
    return is_here_ && has_types(inputs) && are_there(inputs);
  }

  /* The same as `compute`, in parts, while this lives. */
  Computing begin(std::vector<mx::array> inputs) const {
    return {steps_, known_, places(std::move(inputs))};
  }

  /* The same, computed: by the caller's thread, or on the stream without mlx's own account of a
   * graph. */
  std::vector<mx::array> compute(std::vector<mx::array> inputs) const {
    Places arrays = places(std::move(inputs));
    return is_short_ ? compute_here(std::move(arrays)) : compute_there(std::move(arrays));
  }

  /* An input whose elements are lent: they stay where they are until the results are made, or are
   * copied. Nothing if neither is possible. */
  std::optional<mx::array> lent(size_t input, char* elements) const {
    mx::array array(shapes_.at(input), dtypes_[input], nullptr, std::vector<mx::array>{});
    if (array.nbytes() > MOST_COPIED) {
      if (asks_sizes_ || front() == 0) return std::nullopt;
      const mx::allocator::Buffer begin(elements - front());
      return mx::array(mx::allocator::Data(begin, [](mx::allocator::Buffer) {}), array.shape(),
                       array.dtype());
    }
    array.set_data(mx::allocator::malloc(array.nbytes()));
    array.set_status(mx::array::Status::available);
    std::memcpy(array.data<char>(), elements, array.nbytes());
    return array;
  }

  /* The same with row-major results, by the caller's thread. `lent`: inputs whose memory is not
   * written, and is no result's. */
  std::vector<mx::array> launch(std::vector<mx::array> inputs,
                                const std::vector<mx::array>& lent) const {
    std::vector<mx::array> results = compute(std::move(inputs));
    for (mx::array& result : results) {
      const bool is_lent = std::ranges::any_of(lent, [&](const mx::array& one) {
        return one.data_shared_ptr() == result.data_shared_ptr();
      });
      if (result.flags().row_contiguous && !is_lent) continue;
      mx::array copy(result.shape(), result.dtype(), nullptr, std::vector<mx::array>{});
      copy_elements(result, copy);
      copy.set_status(mx::array::Status::available);
      result = std::move(copy);
    }
    return results;
  }

  size_t inputs() const { return shapes_.size(); }
  size_t steps() const { return steps_.size(); }

  /* Whether the caller's thread computes all steps. */
  bool is_short() const { return is_short_; }

  std::vector<mx::array> results(const Places& arrays) const {
    std::vector<mx::array> found;
    found.reserve(results_.size());
    for (const uint32_t place : results_) found.push_back(*arrays[place]);
    return found;
  }

 private:
  bool has_types(const std::vector<mx::array>& inputs) const {
    if (inputs.size() != shapes_.size()) return false;
    for (size_t i = 0; i < inputs.size(); i++)
      if (inputs[i].shape() != shapes_[i] || inputs[i].dtype() != dtypes_[i]) return false;
    return true;
  }

  bool are_there(const std::vector<mx::array>& inputs) const {
    const auto is_there = [](const mx::array& array) {
      return array.is_available() && is_sound(array);
    };
    return std::ranges::all_of(inputs, is_there) &&
           std::ranges::all_of(kept_, [&](const auto& kept) { return is_there(kept.second); });
  }

  std::vector<mx::array> compute_here(Places arrays) const {
    Computing computing(steps_, known_, std::move(arrays));
    computing.advance(Computing::Clock::duration::max());
    return results(computing.arrays());
  }

  std::vector<mx::array> compute_there(Places given) const {
    UnderWay under_way(stream_, std::move(given));
    Places& arrays = under_way.places();
    for (size_t at = 0; at < steps_.size(); at++) {
      const Recorded& step = steps_[at];
      take_inputs(step, known_[at], arrays, under_way.read());
      under_way.made() = outputs_of(step);
      under_way.start(*step.primitive);
      put(step, under_way.made(), arrays);
    }
    under_way.finish();
    return results(arrays);
  }

  bool can_be_started() const {
    const auto is_here = [&](const Recorded& step) {
      return step.primitive->stream() == stream_ && !needs_graph(*step.primitive);
    };
    return stream_.device == mx::Device::cpu && !steps_.empty() && makes_little() &&
           std::ranges::all_of(steps_, is_here);
  }

  /* Find out where an array is read for the last time. */
  void find_ends() {
    std::vector<bool> later(count_);
    for (const auto& [place, value] : kept_) later[place] = true;
    for (const uint32_t place : results_) later[place] = true;
    for (const Recorded& step : steps_) known_.emplace_back(*step.primitive);
    for (size_t at = steps_.size(); at-- > 0;) {
      const std::vector<uint32_t>& inputs = steps_[at].inputs;
      for (const uint32_t place : inputs)
        known_[at].ends.push_back(!later[place] && std::ranges::count(inputs, place) == 1);
      for (const uint32_t place : inputs) later[place] = true;
    }
  }

  Places places(std::vector<mx::array> inputs) const {
    Places arrays(count_);
    for (size_t i = 0; i < inputs.size(); i++) arrays[i] = std::move(inputs[i]);
    for (const auto& [place, value] : kept_) arrays[place] = value;
    return arrays;
  }

  static std::vector<mx::array> inputs_of(const Recorded& step, const Places& arrays) {
    std::vector<mx::array> given;
    given.reserve(step.inputs.size());
    for (const uint32_t place : step.inputs) given.push_back(*arrays[place]);
    return given;
  }

  /* What kernels of processors do better than mlx's operations. Fuses elementwise steps: also
   * those that stand alone, if the caller can compute all then. */
  void improve() {
    move_parts(steps_, seen_, results_);
    count_ = static_cast<uint32_t>(seen_.size());
    eliminate_common(steps_, kept_, count_, results_);
    remove_unread();
    replace_sums(steps_, seen_);
    replace_scatters(steps_, seen_);
    replace_gathers(steps_, seen_);
    const std::vector<Recorded> before = steps_;
    add_products(steps_, seen_, results_);
    replace_outer_products(steps_, seen_);
    replace_products(steps_, seen_);
    count_ = static_cast<uint32_t>(seen_.size());
    remove_unread();
    fuse(steps_, seen_, results_, true);
    replace_concatenations(steps_);
    remove_unread(); /* what is broadcast */
    is_here_ = can_be_here();
    is_short_ = is_here_ && makes_little();
    if (is_here_) return;
    steps_ = before;
    fuse(steps_, seen_, results_, false);
    remove_unread();
  }

  bool can_be_here() const {
    const auto is_kernel = [](const Recorded& step) {
      return is_view(*step.primitive) ||
             (std::string_view(step.primitive->name()).starts_with("Cowmlx") &&
              !needs_graph(*step.primitive));
    };
    return std::ranges::all_of(steps_, is_kernel);
  }

  bool makes_little() const {
    size_t bytes = 0;
    for (const Recorded& step : steps_)
      if (takes_memory(*step.primitive))
        for (const uint32_t place : step.outputs) bytes += seen_[place].nbytes();
    return bytes <= MOST_BYTES;
  }

  uint32_t place_of(const mx::array& array) {
    const auto [found, added] = places_.try_emplace(array.id(), count_);
    if (added) {
      count_++;
      seen_.push_back(array); /* an id is an address: it must not be given to another array */
    }
    return found->second;
  }

  /* Write down all that an array needs, and then itself. Graphs are deep, so nothing recurses. */
  void write(const mx::array& result) {
    std::vector<std::pair<mx::array, size_t>> waiting{{result, 0}};
    while (!waiting.empty()) {
      const mx::array array = waiting.back().first;
      if (places_.contains(array.id())) {
        waiting.pop_back();
        continue;
      }
      const bool is_made = array.has_primitive();
      size_t& next = waiting.back().second;
      if (is_made && next < array.inputs().size()) {
        const mx::array& input = array.inputs()[next++];
        if (!places_.contains(input.id())) waiting.emplace_back(input, 0);
        continue;
      }
      waiting.pop_back();
      if (is_made && is_same(array.primitive())) {
        places_[array.id()] = places_.at(array.inputs()[0].id());
        same_.push_back(array);
      } else if (is_made && is(array.primitive(), "CustomTransforms")) {
        write_results(array);
      } else if (is_made) {
        write_step(array);
      } else {
        kept_.emplace_back(place_of(array), array);
      }
    }
  }

  /* A function with its own gradient: its inputs are arguments, then the results. */
  void write_results(const mx::array& array) {
    const auto outputs = array.outputs();
    const size_t first = array.inputs().size() - outputs.size();
    for (size_t i = 0; i < outputs.size(); i++)
      places_[outputs[i].id()] = places_.at(array.inputs()[first + i].id());
    same_.push_back(array);
  }

  void write_step(const mx::array& array) {
    Recorded step{array.primitive_ptr(), {}, {}, {}, {}};
    for (const auto& input : array.inputs()) step.inputs.push_back(places_.at(input.id()));
    for (const auto& output : array.outputs()) {
      step.outputs.push_back(place_of(output));
      step.shapes.push_back(output.shape());
      step.dtypes.push_back(output.dtype());
    }
    steps_.push_back(std::move(step));
  }

  void remove_unread() {
    std::vector<bool> needed(count_);
    for (const uint32_t place : results_) needed[place] = true;
    for (size_t at = steps_.size(); at-- > 0;) {
      Recorded& step = steps_[at];
      if (std::none_of(step.outputs.begin(), step.outputs.end(),
                       [&](uint32_t place) { return needed[place]; }))
        step.primitive = nullptr;
      if (step.primitive == nullptr) continue;
      for (const uint32_t place : step.inputs) needed[place] = true;
    }
    std::erase_if(steps_, [](const Recorded& step) { return step.primitive == nullptr; });
  }

  mx::Stream stream_;
  std::vector<mx::Shape> shapes_;
  std::vector<mx::Dtype> dtypes_;
  std::vector<Recorded> steps_;
  std::vector<std::pair<uint32_t, mx::array>> kept_;
  std::vector<uint32_t> results_;
  uint32_t count_ = 0;
  bool is_here_ = false;     /* the caller's thread may compute it, in parts */
  bool is_short_ = false;    /* or at once */
  bool asks_sizes_ = false;  /* mlx reads the sizes of buffers, which lie before the elements */
  bool can_start_ = false;   /* or start all of it on the stream */
  std::vector<Known> known_; /* of each step */
  /* While it is being recorded. */
  std::unordered_map<uintptr_t, uint32_t> places_;
  std::vector<mx::array> seen_;
  std::vector<mx::array> same_; /* those whose place is their input's */
};

/* A recording that is computed in parts. */
class Running {
 public:
  Running(const Recording& recording, std::vector<mx::array> inputs)
      : recording_(recording), computing_(recording.begin(std::move(inputs))) {}

  bool advance(double seconds) {
    const nb::gil_scoped_release release;
    const std::chrono::duration<double> time(seconds);
    is_computed_ = computing_.advance(std::chrono::duration_cast<Computing::Clock::duration>(time));
    return is_computed_;
  }

  std::vector<mx::array> results() const {
    if (!is_computed_) refuse("not all is computed");
    return recording_.results(computing_.arrays());
  }

 private:
  const Recording& recording_;
  Computing computing_;
  bool is_computed_ = false;
};

/* Nothing if the caller's thread does not compute the recording with these arrays. */
std::unique_ptr<Running> begin(const Recording& recording, nb::list given) {
  auto inputs = nb::cast<std::vector<mx::array>>(given);
  if (!recording.begins(inputs)) return nullptr;
  given.clear();
  return std::make_unique<Running>(recording, std::move(inputs));
}

/* The results of arrays and of elements at addresses; nothing if one is neither. */
std::optional<std::vector<mx::array>> launch(const Recording& recording, const nb::list& given) {
  if (!recording.is_short() || given.size() != recording.inputs()) return std::nullopt;
  std::vector<mx::array> inputs, lent;
  for (size_t i = 0; i < given.size(); i++) {
    const nb::handle one = given[i];
    if (nb::isinstance<mx::array>(one)) {
      inputs.push_back(nb::cast<mx::array>(one));
      continue;
    }
    if (!PyLong_CheckExact(one.ptr())) return std::nullopt;
    auto input = recording.lent(i, reinterpret_cast<char*>(nb::cast<uintptr_t>(one)));
    if (!input) return std::nullopt;
    inputs.push_back(*input);
    lent.push_back(std::move(*input)); /* so that nothing computes in place there */
  }
  if (!recording.computes(inputs)) return std::nullopt;
  const nb::gil_scoped_release release;
  return recording.launch(std::move(inputs), lent);
}

}  // namespace

void bind_recording(nb::module_& module) {
  nb::class_<Running>(module, "Running", "A recording that the caller's thread computes in parts.")
      .def("advance", &Running::advance, "seconds"_a,
           R"(Compute operations until all are computed, or until some time has passed.

Returns:
    Whether all are computed.

Raises:
    RuntimeError, ValueError, MemoryError: an operation failed; nothing more can be computed.)")
      .def("results", &Running::results,
           "The function's results.\n\nRaises:\n    ValueError: not all is computed.");
  nb::class_<Recording>(module, "Recording",
                        R"(What a function of arrays does, to be done again without asking it.

The function is called once, with arrays without values, and must not ask for any.

Args:
    function: takes arrays, gives a list of arrays.
    inputs: arrays of the shapes and dtypes that it is recorded for.
    steady: whether most replays have the same matrices, which are kept in blocks then.)")
      .def(nb::init<const nb::callable&, const std::vector<mx::array>&, bool>(), "function"_a,
           "inputs"_a, "steady"_a = false)
      .def("fits", &Recording::fits, "inputs"_a,
           "Whether it was recorded for such shapes and dtypes, and the default stream of now.")
      .def("replay", &Recording::replay, "inputs"_a,
           "The function's results, lazily.\n\n"
           "Raises:\n    ValueError: it was recorded for others.")
      .def(
          "compute",
          [](const Recording& recording, nb::list given) -> std::optional<std::vector<mx::array>> {
            auto inputs = nb::cast<std::vector<mx::array>>(given);
            if (!recording.computes(inputs)) return std::nullopt;
            given.clear();
            const nb::gil_scoped_release release;
            return recording.compute(std::move(inputs));
          },
          "inputs"_a,
          R"(The function's results, computed before it returns, without mlx's account of a graph.

Args:
    inputs: a list, which is emptied: an operation may compute in the memory of what nobody else
        holds.

Returns:
    None, and the list stays, if that cannot be: operations on other streams, ones that make tens of
    MiB, inputs that are not computed or of other shapes or dtypes.

Raises:
    RuntimeError, ValueError, MemoryError: an operation failed; nothing of it is under way then.)")
      .def("begin", begin, "inputs"_a, nb::keep_alive<0, 1>(),
           R"(Begin to compute the function's results in parts, by the caller's thread.

Args:
    inputs: a list, which is emptied, as ``compute`` does.

Returns:
    None, and the list stays, if that cannot be: operations that are no kernels, inputs that are not
    computed or of other shapes or dtypes.)")
      .def("launch", launch, "inputs"_a,
           R"(The function's results, row-major, computed by the caller's thread.

Args:
    inputs: each an array, or the address of its elements, row-major, which are read only.

Returns:
    None if it cannot compute them, as ``compute``.

Raises:
    RuntimeError, ValueError, MemoryError: an operation failed.)")
      .def("steps", &Recording::steps, "How many operations it has.")
      .def("is_short", &Recording::is_short,
           "Whether the caller's thread computes all of them, and at once.");
}

}  // namespace cowmlx
