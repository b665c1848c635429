/* Matrices by blocks of 16 rows. */
#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "operation.h"

namespace cowmlx {
namespace {

/* Ask the system to lay memory that is not written yet in large pages, where it has them:
 * walking the tables of 4 KiB pages takes a part of the time that reading weights takes. A hint,
 * which changes no content and cannot fail. */
#ifdef MADV_HUGEPAGE
void in_large_pages(void* begin, size_t bytes) {
  constexpr uintptr_t LARGE = uintptr_t{1} << 21; /* of x86-64, and of ARM with pages of 4 KiB */
  const auto first = (reinterpret_cast<uintptr_t>(begin) + LARGE - 1) / LARGE * LARGE;
  const auto end = (reinterpret_cast<uintptr_t>(begin) + bytes) / LARGE * LARGE;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}
#else
void in_large_pages(void*, size_t) {} /* macOS has them for itself alone */
#endif

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

class Pack : public Operation {
 public:
  using Operation::Operation;

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

  const char* name() const override { return "CowmlxPack"; }
};

mx::array pack(const mx::array& matrix) {
  const mx::Stream stream = cpu_stream();
  if (matrix.ndim() != 2 || matrix.size() == 0 || matrix.itemsize() > 4)
    refuse("pack takes a matrix of numbers of at most 32 bits, not empty");
  const int blocks = (matrix.shape(0) + LANES - 1) / LANES;
  return mx::array({blocks, matrix.shape(1), LANES}, matrix.dtype(), std::make_shared<Pack>(stream),
                   {plain(matrix, stream)});
}

}  // namespace

void bind_pack(nb::module_& module) {
  module.def("pack", pack, "matrix"_a,
             R"(A matrix (N, W) by blocks of 16 rows, as products read it: (blocks, W, 16).

Weights as mlx packs them, dense ones, scales and biases are all packed so. The last block is filled
up with zeros.

Raises:
    ValueError: it is no matrix, is empty, or of numbers wider than 32 bits.)");
}

}  // namespace cowmlx
