#include <cmath>

#include "operation.h"

namespace cowmlx {
namespace {

constexpr int64_t CHUNK = 1 << 14; /* numbers that one thread takes at a time */
constexpr int64_t BLOCK = 1 << 10; /* numbers whose squares are added up as float32 */
constexpr int64_t LANES = 16;

double squares(const float* x, int64_t count) {
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += BLOCK) {
    const int64_t end = std::min(begin + BLOCK, count);
    float lanes[LANES] = {};
    int64_t at = begin;
    for (; at + LANES <= end; at += LANES)
      for (int64_t lane = 0; lane < LANES; lane++) lanes[lane] += x[at + lane] * x[at + lane];
    for (int64_t lane = 0; at < end; at++, lane++) lanes[lane] += x[at] * x[at];
    for (const float lane : lanes) total += static_cast<double>(lane);
  }
  return total;
}

struct Chunk {
  const float* data;
  int64_t count;
};

/* The numbers of an array as they lie, or a copy that is to be made where there are gaps. */
const float* in_any_order(const mx::array& array, mx::cpu::CommandEncoder& encoder,
                          std::vector<Copy>& copies) {
  if (array.flags().contiguous && array.data_size() == array.size()) return array.data<float>();
  std::optional<Copy> copy;
  const float* data = lying(array, encoder, copy);
  if (copy) copies.push_back(std::move(*copy));
  return data;
}

class Norm : public Operation {
 public:
  using Operation::Operation;

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    std::vector<Chunk> chunks;
    std::vector<Copy> copies;
    int64_t total = 0;
    for (const mx::array& input : inputs) {
      const auto size = static_cast<int64_t>(input.size());
      const float* data = in_any_order(input, encoder, copies);
      for (int64_t begin = 0; begin < size; begin += CHUNK)
        chunks.push_back({data + begin, std::min(CHUNK, size - begin)});
      total += size;
    }
    auto* sums = temporary<double>(encoder, static_cast<int64_t>(chunks.size()));
    const int workers = total > CHUNK ? threads() : 1;
    dispatch(encoder, [chunks = std::move(chunks), copies = std::move(copies), workers, sums,
                       to = out.data<float>()] {
      for (const Copy& copy : copies) copy.run();
      share(static_cast<int>(chunks.size()), workers, [&](int at, int) {
        const Chunk& chunk = chunks[static_cast<size_t>(at)];
        sums[at] = squares(chunk.data, chunk.count);
      });
      double total = 0;
      for (size_t at = 0; at < chunks.size(); at++) total += sums[at];
      *to = static_cast<float>(std::sqrt(total));
    });
  }

  const char* name() const override { return "CowmlxNorm"; }
};

mx::array norm(const Arrays& arrays) {
  const mx::Stream stream = cpu_stream();
  Arrays inputs;
  for (const mx::array& array : arrays) {
    if (array.dtype() != mx::float32) refuse("arrays must be float32");
    if (array.size() > 0) inputs.push_back(array);
  }
  if (inputs.empty()) return mx::array(0.0F);
  return mx::array({}, mx::float32, std::make_shared<Norm>(stream), std::move(inputs));
}

}  // namespace

void bind_norm(nb::module_& module) {
  module.def("norm", norm, "arrays"_a,
             R"(The Euclidean norm of all numbers of some float32 arrays together.

Squares are added up as float32, 64 at most, and these sums as float64. The result does not depend on
the number of threads.

Args:
    arrays: of any shapes.

Returns:
    () float32.)");
}

}  // namespace cowmlx
