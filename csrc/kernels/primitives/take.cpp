#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include "mlx/ops.h"
#include "mlx/primitives.h"

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

constexpr int CHUNK = 16; /* rows of embeddings that one thread takes at a time */

/* Rows of a matrix as numbers. */
struct Job {
  Matrix matrix;
  const int32_t* indices;
  int64_t count;
  float* values; /* a row for each chunk, where the result is no float32 */
  void* out;
  Scalar out_type;

  void row(const Table& table, int64_t place, float* spare) const {
    const int columns = matrix.columns;
    float* to = spare != nullptr ? spare : static_cast<float*>(out) + place * columns;
    const int index = indices[place] < 0 ? indices[place] + matrix.rows : indices[place];
    if (index >= 0 && index < matrix.rows) {
      table.unpack_row(matrix, index, to);
    } else { /* nobody can be told here: numbers that are none spoil what they get into */
      std::fill_n(to, columns, std::numeric_limits<float>::quiet_NaN());
    }
    if (spare != nullptr)
      table.store(spare, columns, static_cast<uint16_t*>(out) + place * columns, out_type);
  }

  void operator()() const {
    const Table& used = table();
    parallel(static_cast<int>((count + CHUNK - 1) / CHUNK), [&](int chunk) {
      const int64_t first = int64_t{chunk} * CHUNK;
      float* spare = values != nullptr ? values + int64_t{chunk} * matrix.columns : nullptr;
      for (int64_t place = first; place < std::min(first + CHUNK, count); place++)
        row(used, place, spare);
    });
  }
};

class Take : public mx::UnaryPrimitive {
 public:
  Take(mx::Stream stream, Layout layout) : mx::UnaryPrimitive(stream), layout_(layout) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    const auto count = static_cast<int64_t>(inputs[0].size());
    const Scalar type = scalar_of(out, "out");
    const int64_t spare = (count + CHUNK - 1) / CHUNK * layout_.columns;
    auto* values = type == Scalar::Float32 ? nullptr : temporary<float>(encoder, spare);
    encoder.dispatch(Job{layout_.matrix(inputs, 1), inputs[0].data<int32_t>(), count, values,
                         out.data<void>(), type});
  }

  void eval_gpu(const Arrays&, mx::array&) override {
    throw std::runtime_error("kernels run on the CPU");
  }

  const char* name() const override { return "CowmlxTake"; }

 private:
  Layout layout_;
};

mx::array take(const mx::array& indices, const mx::array& weight,
               const std::optional<mx::array>& scales, const std::optional<mx::array>& biases,
               int rows, const std::string& mode, int bits, int group, mx::Dtype dtype,
               mx::StreamOrDevice where) {
  const mx::Stream stream = stream_of(where);
  if (!mx::issubdtype(indices.dtype(), mx::integer))
    throw std::invalid_argument("indices are whole numbers");
  if (dtype != mx::float32 && dtype != mx::float16 && dtype != mx::bfloat16)
    throw std::invalid_argument("dtype can be float32, float16 or bfloat16");
  Arrays inputs{plain(mx::astype(indices, mx::int32, stream), stream)};
  const Layout layout =
      add_matrix(inputs, weight, scales, biases, std::nullopt, rows, mode, bits, group, stream);
  mx::Shape shape = indices.shape();
  shape.push_back(layout.columns);
  return mx::array(std::move(shape), dtype, std::make_shared<Take>(stream, layout),
                   std::move(inputs));
}

}  // namespace

void bind_take(nb::module_& module) {
  module.def("take", take, "indices"_a, "weight"_a, "scales"_a = nb::none(),
             "biases"_a = nb::none(), nb::kw_only(), "rows"_a, "mode"_a = "dense", "bits"_a = 0,
             "group"_a = 0, "dtype"_a, "stream"_a = nb::none(),
             R"(Rows of a matrix as numbers, such as embeddings: (...) indices to (..., K).

Args:
    indices: whole numbers; negative ones count from the end. Rows out of range are NaN.
    weight, scales, biases, rows, mode, bits, group, stream: as product() takes them.
    dtype: of the result.

Raises:
    ValueError: shapes, types or formats do not fit.)");
}

}  // namespace cowmlx
