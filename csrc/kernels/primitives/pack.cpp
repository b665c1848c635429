#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <nanobind/nanobind.h>
#include <nanobind/stl/variant.h>

#include "mlx/primitives.h"

#include "bindings.h"
#include "dispatch.h"
#include "pages.h"
#include "pool.h"
#include "weights.h"

namespace mx = mlx::core;
namespace nb = nanobind;
using namespace nb::literals;

namespace cowmlx {
namespace {

/* Write 16 rows of words (fewer in the last block) word after word, beside each other. */
template <class Word>
void transpose(const Word* rows, int count, int words, Word* out) {
  for (int word = 0; word < words; word++) {
    for (int lane = 0; lane < LANES; lane++)
      out[word * int64_t{LANES} + lane] =
          lane < count ? rows[lane * int64_t{words} + word] : Word{0};
  }
}

template <class Word>
void pack_blocks(const void* from, void* out, int rows, int words) {
  const auto* matrix = static_cast<const Word*>(from);
  auto* blocks = static_cast<Word*>(out);
  parallel((rows + LANES - 1) / LANES, [&](int block) {
    const int64_t first = int64_t{block} * LANES;
    transpose(matrix + first * words, static_cast<int>(std::min<int64_t>(LANES, rows - first)),
              words, blocks + first * words);
  });
}

class Pack : public mx::UnaryPrimitive {
 public:
  using mx::UnaryPrimitive::UnaryPrimitive;

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    in_large_pages(out.data<void>(), out.nbytes());
    encoder.dispatch([from = inputs[0].data<void>(), to = out.data<void>(),
                      rows = inputs[0].shape(0), words = inputs[0].shape(1),
                      size = inputs[0].itemsize()] {
      if (size == 4) pack_blocks<uint32_t>(from, to, rows, words);
      if (size == 2) pack_blocks<uint16_t>(from, to, rows, words);
      if (size == 1) pack_blocks<uint8_t>(from, to, rows, words);
    });
  }

  void eval_gpu(const Arrays&, mx::array&) override {
    throw std::runtime_error("kernels run on the CPU");
  }

  const char* name() const override { return "CowmlxPack"; }
};

mx::array pack(const mx::array& matrix, mx::StreamOrDevice where) {
  const mx::Stream stream = stream_of(where);
  if (matrix.ndim() != 2 || matrix.size() == 0 || matrix.itemsize() > 4)
    throw std::invalid_argument("pack takes a matrix of numbers of at most 32 bits, not empty");
  const int blocks = (matrix.shape(0) + LANES - 1) / LANES;
  return mx::array({blocks, matrix.shape(1), LANES}, matrix.dtype(), std::make_shared<Pack>(stream),
                   {plain(matrix, stream)});
}

}  // namespace

void bind_pack(nb::module_& module) {
  module.def("pack", pack, "matrix"_a, nb::kw_only(), "stream"_a = nb::none(),
             R"(A matrix (N, W) by blocks of 16 rows, as products read it: (blocks, W, 16).

Weights as mlx packs them, dense ones, scales and biases are all packed so. The last block is filled
up with zeros.

Raises:
    ValueError: it is no matrix, is empty, or of numbers wider than 32 bits.)");
}

}  // namespace cowmlx
