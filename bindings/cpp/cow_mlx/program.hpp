/* Programs: computations on arrays. See cow_mlx.hpp. */
#ifndef COW_MLX_PROGRAM_HPP
#define COW_MLX_PROGRAM_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "array.hpp"
#include "methods.hpp"
#include "params.hpp"

namespace cowmlx {

/** What a run is given: an array, which has to live until the run ends, or memory, which is copied
 * at once. */
class Input {
 public:
  Input(const Array& array) : array_(array.handle()) {}

  /** Elements in row-major order. */
  template <typename T>
  Input(Span<const T> values, Shape shape)
      : shape_(std::move(shape)),
        tensor_(Array::tensor(values.data(), values.size(), shape_, "program_run")) {}
  template <typename T>
  Input(const std::vector<T>& values, Shape shape)
      : Input(Span<const T>(values.data(), values.size()), std::move(shape)) {}
  /** Keeps elements that have no other owner. */
  template <typename T>
  Input(std::vector<T>&& values, Shape shape)
      : Input(std::make_shared<const std::vector<T>>(std::move(values)), std::move(shape)) {}

 private:
  friend class Program;
  friend class Training;

  template <typename T>
  Input(std::shared_ptr<const std::vector<T>> values, Shape shape)
      : Input(Span<const T>(values->data(), values->size()), std::move(shape)) {
    kept_ = std::move(values);
  }

  cow_mlx_array array_ = 0;
  std::shared_ptr<const void> kept_;
  Shape shape_;
  cow_mlx_tensor tensor_ = {};
};

/** Memory that a run fills, in row-major order: of the result's type and shape. */
class Output {
 public:
  template <typename T>
  Output(Span<T> values, Shape shape)
      : shape_(std::move(shape)),
        tensor_(Array::tensor(values.data(), values.size(), shape_, "program_run")) {}
  template <typename T>
  Output(std::vector<T>& values, Shape shape)
      : Output(Span<T>(values.data(), values.size()), std::move(shape)) {}

 private:
  friend class Program;

  Shape shape_;
  cow_mlx_tensor tensor_;
};

/** The options of a run, which begin with the defaults. */
struct RunParams : detail::RunFields {
  /** Indices of inputs that the run is given: arrays that must not be used any more. */
  std::vector<std::int32_t> donate;

 private:
  friend class Program;
};

/** The options of a program, which begin with the defaults. */
struct ProgramParams : detail::ProgramFields {
 private:
  friend class Program;
};

/** A computation on arrays: checked once, run many times, by any number of threads at once. */
class Program : public detail::ProgramMethods<Program> {
 public:
  /** @param json  the program; see cow_mlx_program_create() */
  explicit Program(std::string_view json) : Program(create(json)) {}

  /** The program of a file; see cow_mlx_program_load(). */
  static Program load(const std::string& path, const ProgramParams& params = {}) {
    cow_mlx_program program = 0;
    detail::Texts texts;
    const cow_mlx_program_params raw = params.lowered("program_load", texts);
    detail::check(
        cow_mlx_program_load(detail::c_string(path, "program_load: path"), &raw, &program));
    return Program(program);
  }

  cow_mlx_program handle() const noexcept { return handle_.get(); }

  /** Its gradient, the same for many rows, or with inputs bound; see cow_mlx_program_derive(). */
  Program derive(std::string_view spec_json) const {
    cow_mlx_program program = 0;
    detail::check(cow_mlx_program_derive(handle(), spec_json.data(), spec_json.size(), &program));
    return Program(program);
  }

  /** Run it, and fill memory with all its results. */
  void run(const std::vector<Input>& inputs, const std::vector<Output>& outputs,
           const RunParams& params = {}) const {
    std::vector<cow_mlx_tensor> tensors;
    for (const Output& output : outputs) tensors.push_back(placed(output.tensor_, output.shape_));
    std::vector<cow_mlx_value> values;
    for (const cow_mlx_tensor& tensor : tensors) values.push_back({0, &tensor});
    run(inputs, values, params, false);
  }

  /** Run it; returns its results, as many as it has. */
  std::vector<Array> run(const std::vector<Input>& inputs, std::size_t outputs = 1,
                         const RunParams& params = {}) const {
    return arrays(inputs, outputs, params, false);
  }

  /** Run it later; returns its results at once, and Array::wait() waits for them. */
  std::vector<Array> submit(const std::vector<Input>& inputs, std::size_t outputs = 1,
                            const RunParams& params = {}) const {
    return arrays(inputs, outputs, params, true);
  }

  /** End its runs. Never blocks; for any thread, at any time. */
  void cancel() const { detail::check_cancel(cow_mlx_program_cancel(handle()), "program"); }

  /** What it is, as a JSON object, and with a value of each dimension what a run takes. */
  std::string info(const std::string& dimensions = {}) const {
    const char* given = detail::optional(dimensions, "program_info: dimensions");
    return detail::fill<std::string>(4096, [&](char* text, std::size_t size, std::size_t* length) {
      return cow_mlx_program_info(handle(), given, text, size, length);
    });
  }

  /** All operations, as a JSON array. */
  static std::string operations() {
    return detail::fill<std::string>(1 << 19,
                                     [](char* text, std::size_t size, std::size_t* length) {
                                       return cow_mlx_operations_info(text, size, length);
                                     });
  }

 private:
  explicit Program(cow_mlx_program program) : handle_(program) {}

  static cow_mlx_program create(std::string_view json) {
    cow_mlx_program program = 0;
    detail::check(cow_mlx_program_create(json.data(), json.size(), nullptr, &program));
    return program;
  }

  static cow_mlx_tensor placed(cow_mlx_tensor tensor, const Shape& shape) {
    tensor.shape = shape.data(); /* which was elsewhere if it has been copied since */
    return tensor;
  }

  std::vector<Array> arrays(const std::vector<Input>& inputs, std::size_t outputs,
                            const RunParams& params, bool submit) const {
    std::vector<cow_mlx_value> values(outputs);
    std::vector<Array> results;
    results.reserve(outputs);
    run(inputs, values, params, submit);
    for (const cow_mlx_value& value : values) results.push_back(Array(value.array));
    return results;
  }

  friend class Training;

  static std::vector<cow_mlx_tensor> tensors_of(const std::vector<Input>& inputs) {
    std::vector<cow_mlx_tensor> tensors;
    for (const Input& input : inputs) tensors.push_back(placed(input.tensor_, input.shape_));
    return tensors;
  }

  static std::vector<cow_mlx_value> values_of(const std::vector<Input>& inputs,
                                              const std::vector<cow_mlx_tensor>& tensors) {
    std::vector<cow_mlx_value> values;
    for (std::size_t i = 0; i < inputs.size(); i++) {
      values.push_back({inputs[i].array_, inputs[i].array_ != 0 ? nullptr : &tensors[i]});
    }
    return values;
  }

  void run(const std::vector<Input>& inputs, std::vector<cow_mlx_value>& outputs,
           const RunParams& params, bool submit) const {
    const std::vector<cow_mlx_tensor> tensors = tensors_of(inputs);
    const std::vector<cow_mlx_value> values = values_of(inputs, tensors);
    detail::Texts texts;
    cow_mlx_run_params given = params.lowered("program_run", texts);
    given.submit = submit;
    given.donate = params.donate.data();
    given.donate_count = params.donate.size();
    detail::check(cow_mlx_program_run(handle(), values.data(), values.size(), outputs.data(),
                                      outputs.size(), &given));
  }

  detail::Handle<cow_mlx_program_free> handle_;
};

}  // namespace cowmlx

#endif /* COW_MLX_PROGRAM_HPP */
