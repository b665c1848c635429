/* What primitives share: how they dispatch work to a stream of mlx, and how Python calls them. */
#pragma once

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "mlx/allocator.h"
#include "mlx/array.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "mlx/transforms.h"
#include "mlx/utils.h"

#include "arrays.h"
#include "pool.h"
#include "table.h"
#include "weights.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cowmlx {

/* The CPU's own stream. */
inline mx::Stream cpu_stream() { return mx::default_stream(mx::Device::cpu); }

/* Give an operation's one output its memory; returns where the task goes. */
inline mx::cpu::CommandEncoder& prepare(mx::Stream stream, const Arrays& inputs, mx::array& out) {
  out.set_data(mx::allocator::malloc(out.nbytes()));
  auto& encoder = mx::cpu::get_command_encoder(stream);
  for (const mx::array& input : inputs) encoder.set_input_array(input);
  encoder.set_output_array(out);
  return encoder;
}

/* Where mlx computes on processors alone, a buffer is where its size is written, and the data
 * follow: so many bytes behind it. 0 if this mlx has another way. */
size_t front();

/* Let an operation's task run: all operations of this library do so here. Where Here is set, their
 * inputs are available. */
template <class Task>
void dispatch(mx::cpu::CommandEncoder& encoder, Task&& task) {
  if (Here::is_set()) {
    task();
  } else {
    encoder.dispatch(std::forward<Task>(task));
  }
}

/* Memory, not initialized, until the operation that is being dispatched is done. It begins at a
 * cache line: vectors that lie in two are slow to read back. */
template <class T>
T* temporary(mx::cpu::CommandEncoder& encoder, int64_t count) {
  constexpr size_t LINE = 64;
  const size_t bytes = static_cast<size_t>(count) * sizeof(T) + LINE;
  mx::array memory(mx::allocator::malloc(bytes), {0}, mx::uint8);
  const auto begin = reinterpret_cast<uintptr_t>(memory.data<char>());
  encoder.add_temporary(std::move(memory));
  return reinterpret_cast<T*>((begin + LINE - 1) / LINE * LINE);
}

/* A float32 input as it lies, or a copy that is to be made. */
inline const float* lying(const mx::array& array, mx::cpu::CommandEncoder& encoder,
                          std::optional<Copy>& copy) {
  if (array.flags().row_contiguous) return array.data<float>();
  auto* to = temporary<float>(encoder, static_cast<int64_t>(array.size()));
  copy.emplace(Copy{Lines(array), reinterpret_cast<char*>(to)});
  return to;
}

/* A primitive that runs on CPUs alone. */
template <class Base, class Output>
class OnCpu : public Base {
 public:
  using Base::Base;

  void eval_gpu(const Arrays&, Output&) override {
    throw std::runtime_error("kernels run on the CPU");
  }
};

using Operation = OnCpu<mx::UnaryPrimitive, mx::array>; /* of one output */
using Operations = OnCpu<mx::Primitive, Arrays>;        /* of several */

/* An input of vmap with its rows first, all the same ones if it has none, which is axis -1. */
mx::array rows_first(const mx::array& input, int axis, int rows, mx::Stream stream);

/* How many rows vmap has. */
int rows_of(const Arrays& inputs, const std::vector<int>& axes);

/* An operation that mlx has too: its gradient is that of mlx's, so that a network with kernels can
 * be trained. */
class WithGradient : public Operation {
 public:
  using Operation::Operation;

  Arrays vjp(const Arrays& primals, const Arrays& cotangents, const std::vector<int>& arguments,
             const Arrays& outputs) override;

  /* Axis -1: no rows. By mlx's operations, where a class knows nothing better. */
  std::pair<Arrays, std::vector<int>> vmap(const Arrays& inputs,
                                           const std::vector<int>& axes) override;

 protected:
  /* The same result, of any type, by operations that have gradients. Throws std::invalid_argument
   * where mlx has none. */
  virtual mx::array plainly(const Arrays& inputs) = 0;

  /* The type of the result. */
  virtual mx::Dtype type() const { return mx::float32; }

  /* An input of vmap with its rows first, all the same ones if it has none. */
  mx::array rows_first(const mx::array& input, int axis, int rows) {
    return cowmlx::rows_first(input, axis, rows, stream());
  }
};

/* Gradients of an operation, of several outputs: their own gradients are those of mlx's. */
class Gradients : public Operations {
 public:
  using Operations::Operations;

  Arrays vjp(const Arrays& primals, const Arrays& cotangents, const std::vector<int>& arguments,
             const Arrays& outputs) override;

  /* By mlx's operations, where a class knows nothing better. */
  std::pair<Arrays, std::vector<int>> vmap(const Arrays& inputs,
                                           const std::vector<int>& axes) override;

 protected:
  /* The same results by mlx's operations, which have gradients. */
  virtual Arrays plainly(const Arrays& inputs) = 0;

  /* How many outputs there are. */
  virtual size_t count() const = 0;
};

/* "silu", "gelu" and so on. Throws std::invalid_argument for other names. */
Activation activation_of(const std::string& name);

/* An operation that a recording can extend by a bias and a relu. */
class Extensible {
 public:
  virtual ~Extensible() = default;

  /* The same with a bias of float32 for the last axis, which becomes the last input, or with 0 for
   * what is below; null if it has that already, or has a relu, which comes last. */
  virtual std::shared_ptr<mx::Primitive> with_bias() = 0;
  virtual std::shared_ptr<mx::Primitive> with_relu() = 0;
};

/* x (..., K) times a matrix (K, N), all float32; it is kept in blocks where it stays the same. */
std::shared_ptr<mx::Primitive> dense_product(mx::Stream stream);

void bind_adam(nb::module_& module);
void bind_adopt(nb::module_& module);
void bind_allocator(nb::module_& module);
void bind_attention(nb::module_& module);
void bind_cache_rows(nb::module_& module);
void bind_channels(nb::module_& module);
void bind_convolution(nb::module_& module);
void bind_cross_entropy(nb::module_& module);
void bind_encoder(nb::module_& module);
void bind_evaluation(nb::module_& module);
void bind_experts(nb::module_& module);
void bind_indices(nb::module_& module);
void bind_layers(nb::module_& module);
void bind_layers_decode(nb::module_& module);
void bind_layers_steps(nb::module_& module);
void bind_mlstm(nb::module_& module);
void bind_norm(nb::module_& module);
void bind_pack(nb::module_& module);
void bind_product(nb::module_& module);
void bind_recording(nb::module_& module);
void bind_rope(nb::module_& module);
void bind_rows(nb::module_& module);
void bind_sample(nb::module_& module);
void bind_texts(nb::module_& module);
void bind_trained_attention(nb::module_& module);

}  // namespace cowmlx
