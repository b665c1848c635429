/* What primitives share that dispatch work to a stream of mlx. */
#pragma once

#include <stdexcept>
#include <utility>
#include <vector>

#include "mlx/allocator.h"
#include "mlx/array.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/utils.h"

namespace cowmlx {

/* The stream that is asked for, or the CPU's own. Throws std::invalid_argument for another
 * device's. */
inline mlx::core::Stream stream_of(const mlx::core::StreamOrDevice& given) {
  const mlx::core::Stream stream = mlx::core::to_stream(given, mlx::core::Device::cpu);
  if (stream.device != mlx::core::Device::cpu)
    throw std::invalid_argument("kernels run on the CPU; the stream is of another device");
  return stream;
}

/* Give an operation's one output its memory; returns where the task goes. */
inline mlx::core::cpu::CommandEncoder& prepare(mlx::core::Stream stream,
                                               const std::vector<mlx::core::array>& inputs,
                                               mlx::core::array& out) {
  out.set_data(mlx::core::allocator::malloc(out.nbytes()));
  auto& encoder = mlx::core::cpu::get_command_encoder(stream);
  for (const mlx::core::array& input : inputs) encoder.set_input_array(input);
  encoder.set_output_array(out);
  return encoder;
}

/* Memory, not initialised, until the operation that is being dispatched is done. */
template <class T>
T* temporary(mlx::core::cpu::CommandEncoder& encoder, int64_t count) {
  const auto bytes = static_cast<size_t>(count) * sizeof(T);
  mlx::core::array memory(mlx::core::allocator::malloc(bytes), {0}, mlx::core::uint8);
  T* data = reinterpret_cast<T*>(memory.data<char>());
  encoder.add_temporary(std::move(memory));
  return data;
}

}  // namespace cowmlx
