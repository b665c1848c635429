#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include "mlx/primitives.h"

#include "activations.h"
#include "bindings.h"
#include "dispatch.h"
#include "pool.h"
#include "table.h"
#include "weights.h"

namespace mx = mlx::core;
namespace nb = nanobind;
using namespace nb::literals;

namespace cowmlx {
namespace {

constexpr int TILE = 256;               /* rows of activations that are prepared together */
constexpr int MAX_GROUP = 4;            /* blocks of a chunk whose result is converted */
constexpr int64_t CHUNK_WORK = 1 << 16; /* weights of a chunk times rows: some µs */

/* How a product is cut: tiles of rows, and groups of blocks within each. */
struct Cut {
  int tile, tiles, group, groups;

  Cut(const Matrix& matrix, int64_t rows, bool converts) {
    const int64_t share = (rows + threads() - 1) / threads();
    const int64_t rounded = (share + LANES - 1) / LANES * LANES;
    tile = static_cast<int>(rows <= SMALL_ROWS ? rows : std::min<int64_t>(rounded, TILE));
    tiles = static_cast<int>((rows + tile - 1) / tile);
    const int blocks = matrix.blocks();
    const int64_t work = static_cast<int64_t>(matrix.columns) * LANES * tile;
    const int64_t least = std::max<int64_t>(1, CHUNK_WORK / work);
    const int64_t even = blocks * static_cast<int64_t>(tiles) / (4 * threads());
    const int64_t most = converts || tiles > 1 ? MAX_GROUP : blocks;
    group = static_cast<int>(std::clamp<int64_t>(even, std::min(least, most), most));
    groups = (blocks + group - 1) / group;
  }
};

/* What one evaluation of a product reads and writes. */
struct Job {
  const Table* table; /* by which scratch was measured */
  Matrix matrix;
  Activations x;
  bool int8;
  float* values;      /* (M, K) for activations that are not direct */
  char* scratch;      /* a part for each tile */
  int64_t part;       /* its bytes */
  Prepared* prepared; /* of each tile */
  void* out;
  Scalar out_type;
  Cut cut;

  int rows_of(int tile) const {
    return static_cast<int>(std::min<int64_t>(cut.tile, x.rows() - int64_t{tile} * cut.tile));
  }

  void prepare(int tile) const {
    const int64_t first = int64_t{tile} * cut.tile;
    const float* from = x.direct() ? x.data() + first * x.columns() : nullptr;
    if (from == nullptr) {
      float* copy = values + first * x.columns();
      x.read(*table, first, rows_of(tile), copy);
      from = copy;
    }
    table->prepare(matrix, from, x.columns(), rows_of(tile), int8, scratch + tile * part,
                   prepared + tile);
  }

  void compute(int tile, int group) const {
    const int from = group * cut.group, to = std::min(from + cut.group, matrix.blocks());
    const int rows = rows_of(tile);
    const int64_t first = int64_t{tile} * cut.tile, stride = matrix.rows;
    if (out_type == Scalar::Float32) {
      table->product(matrix, prepared[tile], from, to, 0, rows,
                     static_cast<float*>(out) + first * stride, stride);
      return;
    }
    alignas(64) float block[TILE * MAX_GROUP * LANES];
    const int width = cut.group * LANES, column = from * LANES;
    const int count = std::min(matrix.rows, to * LANES) - column;
    table->product(matrix, prepared[tile], from, to, 0, rows, block - column, width);
    for (int row = 0; row < rows; row++) {
      auto* place = static_cast<uint16_t*>(out) + (first + row) * stride + column;
      table->store(block + int64_t{row} * width, count, place, out_type);
    }
  }

  void operator()() const {
    parallel(cut.tiles, [&](int tile) { prepare(tile); });
    parallel(cut.tiles * cut.groups,
             [&](int index) { compute(index % cut.tiles, index / cut.tiles); });
  }
};

class Product : public mx::UnaryPrimitive {
 public:
  Product(mx::Stream stream, Layout layout, bool int8)
      : mx::UnaryPrimitive(stream), layout_(layout), int8_(int8) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    const Matrix matrix = layout_.matrix(inputs, 1);
    const Scalar type = scalar_of(out, "x");
    const Activations x(inputs[0]);
    const Cut cut(matrix, x.rows(), type != Scalar::Float32);
    const Table& used = table();
    const int64_t size = used.prepare_size(matrix, cut.tile, int8_);
    const int64_t part = (size + 63) / 64 * 64;
    auto* values = x.direct() ? nullptr : temporary<float>(encoder, x.rows() * x.columns());
    auto* scratch = temporary<char>(encoder, part * cut.tiles);
    auto* prepared = temporary<Prepared>(encoder, cut.tiles);
    encoder.dispatch(
        Job{&used, matrix, x, int8_, values, scratch, part, prepared, out.data<void>(), type, cut});
  }

  void eval_gpu(const Arrays&, mx::array&) override {
    throw std::runtime_error("kernels run on the CPU");
  }

  const char* name() const override { return "CowmlxProduct"; }

 private:
  Layout layout_;
  bool int8_;
};

mx::array product(const mx::array& x, const mx::array& weight,
                  const std::optional<mx::array>& scales, const std::optional<mx::array>& biases,
                  const std::optional<mx::array>& bias, int rows, const std::string& mode, int bits,
                  int group, bool int8, mx::StreamOrDevice where) {
  const mx::Stream stream = stream_of(where);
  if (x.ndim() < 1 || scalar_of(x, "x") == Scalar::UInt8)
    throw std::invalid_argument("x can be float32, float16 or bfloat16, of at least one axis");
  Arrays inputs{x};
  const Layout layout =
      add_matrix(inputs, weight, scales, biases, bias, rows, mode, bits, group, stream);
  if (x.shape(-1) != layout.columns)
    throw std::invalid_argument("the last axis of x is " + std::to_string(x.shape(-1)) +
                                " wide; the matrix takes " + std::to_string(layout.columns));
  mx::Shape shape = x.shape();
  shape.back() = rows;
  const bool rounds = int8 && layout.has_scales;
  return mx::array(std::move(shape), x.dtype(), std::make_shared<Product>(stream, layout, rounds),
                   std::move(inputs));
}

}  // namespace

void bind_product(nb::module_& module) {
  module.def("product", product, "x"_a, "weight"_a, "scales"_a = nb::none(),
             "biases"_a = nb::none(), "bias"_a = nb::none(), nb::kw_only(), "rows"_a,
             "mode"_a = "dense", "bits"_a = 0, "group"_a = 0, "int8"_a = false,
             "stream"_a = nb::none(),
             R"(x times the transpose of a matrix: (..., K) by (N, K) to (..., N) of x's type.

Args:
    x: float32, float16 or bfloat16; sums are float32.
    weight: the matrix as pack() gives it, (blocks, words, 16); packed ones uint32.
    scales: pack() of the scales of packed weights.
    biases: pack() of the biases of mode affine.
    bias: (N,) float32 added to every row of the result.
    rows: N.
    mode: dense, or a mode of mlx.core.quantize.
    bits: of a packed number.
    group: numbers that share a scale.
    int8: round every group of x's numbers to eight bits; dense weights ignore it.
    stream: of the CPU.

Raises:
    ValueError: shapes, types or formats do not fit.)");
}

}  // namespace cowmlx
