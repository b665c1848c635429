/* Trainings of programs and language models. See cow_mlx.hpp. */
#ifndef COW_MLX_TRAINING_HPP
#define COW_MLX_TRAINING_HPP

#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model.hpp"
#include "array.hpp"
#include "methods.hpp"
#include "program.hpp"

namespace cowmlx {

/** An event of a training; see cow_mlx_training_event. */
using TrainingEvent = cow_mlx_training_event;

/** How a training advances. @return false to cancel the call */
using TrainingFn = std::function<bool(const TrainingEvent& event)>;

/** Makes the batch of a step: an array for each input; nothing if there are no more. */
using BatchFn = std::function<std::optional<std::vector<Array>>(std::size_t step)>;

/** The options of a training. */
struct TrainingParams : detail::TrainingFields {
  std::vector<std::pair<std::string, const Array*>> initial; /**< what parameters begin as */

 private:
  friend class Training;
};

/** Data, and when a fit ends. */
struct FitParams : detail::FitFields {
  std::vector<const Array*> inputs; /**< the data, one for each input of the program */
  BatchFn next_batch;               /**< or this brings them */
  std::vector<const Array*> validation;

 private:
  friend class Training;
};

/** A training of a program or of a language model. One call at a time runs on it. */
class Training : public detail::TrainingMethods<Training> {
 public:
  /** Of a program, which may go then. */
  explicit Training(const Program& program, const TrainingParams& params = {})
      : handle_(create(params, [&](const cow_mlx_training_params* given, cow_mlx_training* out) {
          return cow_mlx_training_create(program.handle(), given, out);
        })) {}

  /** Of a language model, which does not change. */
  explicit Training(const Model& model, const TrainingParams& params = {})
      : handle_(create(params, [&](const cow_mlx_training_params* given, cow_mlx_training* out) {
          return cow_mlx_training_create_for_model(model.handle(), given, out);
        })) {}

  cow_mlx_training handle() const noexcept { return handle_.get(); }

  /** Make a step on a batch. */
  TrainingEvent step(const std::vector<Input>& inputs) const {
    const std::vector<cow_mlx_tensor> tensors = Program::tensors_of(inputs);
    const std::vector<cow_mlx_value> values = Program::values_of(inputs, tensors);
    TrainingEvent event = {};
    event.struct_size = sizeof event;
    detail::check(cow_mlx_training_step(handle(), values.data(), values.size(), &event));
    return event;
  }

  /** Make steps until an end; on_event hears of them. */
  void fit(const FitParams& params, const TrainingFn& on_event = {}) const {
    Fit fit(params, on_event);
    fit.check(cow_mlx_training_fit(handle(), &fit.given, on_event ? report : nullptr, &fit));
  }

  /** Loss, accuracy and perplexity on data. */
  TrainingEvent evaluate(const FitParams& params) const {
    Fit fit(params, {});
    TrainingEvent event = {};
    event.struct_size = sizeof event;
    fit.check(cow_mlx_training_evaluate(handle(), &fit.given, &event));
    return event;
  }

  /** A parameter as it is now. */
  Array parameter(const std::string& name) const {
    cow_mlx_array array = 0;
    detail::check(cow_mlx_training_parameter(
        handle(), detail::c_string(name, "training_parameter: name"), &array));
    return Array(array);
  }

  /** The current weights of a language model as an adapter, also while a fit runs. */
  Adapter adapter() const {
    cow_mlx_adapter adapter = 0;
    detail::check(cow_mlx_training_adapter(handle(), &adapter));
    return Adapter(adapter);
  }

  /** Write the trained weights of a language model in mlx-lm's format. */
  void write(const std::string& folder, const std::string& options_json = {}) const {
    detail::check(
        cow_mlx_training_export(handle(), detail::c_string(folder, "training_export: folder"),
                                detail::optional(options_json, "training_export: options_json")));
  }

  /** End the call that runs on it. Never blocks; for any thread, at any time. */
  void cancel() const { detail::check_cancel(cow_mlx_training_cancel(handle()), "training"); }

 private:
  template <typename Make>
  static cow_mlx_training create(const TrainingParams& params, Make make) {
    detail::Texts texts;
    cow_mlx_training_params given = params.lowered("training_create", texts);
    std::vector<const char*> names;
    std::vector<cow_mlx_array> arrays;
    for (const auto& [name, array] : params.initial) {
      names.push_back(detail::c_string(name, "training_create: initial"));
      arrays.push_back(detail::open(array, "training_create: initial"));
    }
    given.initial_names = names.data();
    given.initial_arrays = arrays.data();
    given.initial_count = names.size();
    cow_mlx_training training = 0;
    detail::check(make(&given, &training));
    return training;
  }

  /* What a fit is given, on the stack of its call: user_data of its functions. */
  struct Fit {
    detail::Texts texts; /* before given, which is made with it */
    cow_mlx_fit_params given;
    std::vector<cow_mlx_array> inputs, validation;
    const BatchFn* next_batch;
    const TrainingFn* on_event;
    std::exception_ptr thrown;

    Fit(const FitParams& params, const TrainingFn& hear)
        : given(params.lowered("training_fit", texts)),
          next_batch(&params.next_batch),
          on_event(&hear) {
      for (const Array* array : params.inputs) {
        inputs.push_back(detail::open(array, "training_fit: inputs"));
      }
      for (const Array* array : params.validation) {
        validation.push_back(detail::open(array, "training_fit: validation"));
      }
      given.inputs = inputs.data();
      given.inputs_count = inputs.size();
      given.validation = validation.data();
      given.validation_count = validation.size();
      given.next_batch = params.next_batch ? bring : nullptr;
      given.user_data = this;
    }

    void check(cow_mlx_status status) const {
      if (thrown) std::rethrow_exception(thrown);
      detail::check(status);
    }
  };

  /* No exception may pass through C: it is kept, and ends the call. */
  static bool report(const cow_mlx_training_event* event, void* user_data) {
    auto* fit = static_cast<Fit*>(user_data);
    try {
      return !fit->thrown && (*fit->on_event)(*event);
    } catch (...) {
      fit->thrown = std::current_exception();
      return false;
    }
  }

  static bool bring(std::size_t step, cow_mlx_array* inputs, std::size_t count, void* user_data) {
    auto* fit = static_cast<Fit*>(user_data);
    try {
      std::optional<std::vector<Array>> batch = (*fit->next_batch)(step);
      if (!batch) return false;
      if (batch->size() != count) {
        throw Error(COW_MLX_EINVAL,
                    "training_fit: next_batch gave " + std::to_string(batch->size()) +
                        " arrays, must give " + std::to_string(count),
                    "out_of_range");
      }
      for (std::size_t i = 0; i < count; i++) inputs[i] = (*batch)[i].handle_.give_up();
      return true;
    } catch (...) {
      fit->thrown = std::current_exception();
      return false;
    }
  }

  detail::Handle<cow_mlx_training_free> handle_;
};

}  // namespace cowmlx

#endif
