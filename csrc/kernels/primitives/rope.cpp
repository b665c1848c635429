/* Rotary position embeddings (arXiv 2104.09864): angles, which layers share, and their use. */
#include <cmath>

#include "operation.h"

namespace cowmlx {
namespace {

constexpr int64_t CHUNK = 1 << 13; /* numbers that one thread takes at a time: some µs */

/* Cosines and sines of positions: (B, T, 2, half). */
class Angles : public Operation {
 public:
  Angles(mx::Stream stream, float scale) : Operation(stream), scale_(scale) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    dispatch(encoder, [rows = out.shape(0), length = out.shape(1), half = out.shape(3),
                       scale = scale_, offsets = inputs[0].data<int32_t>(),
                       frequencies = inputs[1].data<float>(), to = out.data<float>()]() mutable {
      for (int row = 0; row < rows; row++)
        for (int t = 0; t < length; t++, to += 2 * int64_t{half}) {
          const float position = static_cast<float>(int64_t{offsets[row]} + t) * scale;
          for (int i = 0; i < half; i++) {
            const float angle = position * frequencies[i];
            to[i] = std::cos(angle);
            to[half + i] = std::sin(angle);
          }
        }
    });
  }

  const char* name() const override { return "CowmlxAngles"; }

 private:
  float scale_;
};

struct Job {
  Activations x; /* rows (B, H, T) */
  const float* angles;
  int heads, length, dims;
  bool every_row, traditional; /* every_row: angles differ between rows of the batch */
  float* spare;                /* a row for each worker, where the result is no float32 */
  int workers;
  void* out;
  Scalar type;

  void rotate(const Table& table, int64_t index, float* own) const {
    const int n = x.columns();
    float* to = own != nullptr ? own : static_cast<float*>(out) + index * n;
    x.read(table, index, 1, to);
    const int64_t t = index % length, row = index / length / heads;
    const float* cosines = angles + ((every_row ? row : 0) * length + t) * dims;
    table.rotate(to, cosines, cosines + dims / 2, dims, traditional);
    if (own != nullptr) table.store(own, n, static_cast<uint16_t*>(out) + index * n, type);
  }

  void operator()() const {
    const Table& used = table();
    const int64_t count = std::max<int64_t>(1, CHUNK / x.columns());
    const auto tasks = static_cast<int>((x.rows() + count - 1) / count);
    share(tasks, workers, [&](int task, int worker) {
      float* own = spare != nullptr ? spare + int64_t{worker} * x.columns() : nullptr;
      const int64_t end = std::min((task + 1) * count, x.rows());
      for (int64_t index = task * count; index < end; index++) rotate(used, index, own);
    });
  }
};

class Rotate : public Operation {
 public:
  Rotate(mx::Stream stream, bool traditional) : Operation(stream), traditional_(traditional) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    const mx::array &x = inputs[0], &angles = inputs[1];
    const int length = x.shape(-2), workers = threads();
    const auto heads = static_cast<int>(x.size() / (int64_t{x.shape(0)} * length * x.shape(-1)));
    const Scalar type = scalar_of(out, "out");
    float* spare = type == Scalar::Float32
                       ? nullptr
                       : temporary<float>(encoder, int64_t{workers} * x.shape(-1));
    dispatch(encoder,
             Job{Activations(x), angles.data<float>(), heads, length, 2 * angles.shape(3),
                 angles.shape(0) > 1, traditional_, spare, workers, out.data<void>(), type});
  }

  /* A rotation's gradient is the rotation back; angles have none. */
  Arrays vjp(const Arrays& primals, const Arrays& cotangents, const std::vector<int>& arguments,
             const Arrays&) override {
    if (arguments != std::vector<int>{0}) refuse("angles have no gradient");
    const mx::array sign = mx::reshape(mx::array({1.0F, -1.0F}), {1, 1, 2, 1}, stream());
    Arrays inputs{cotangents[0], plain(mx::multiply(primals[1], sign, stream()), stream())};
    return {mx::array(primals[0].shape(), primals[0].dtype(),
                      std::make_shared<Rotate>(stream(), traditional_), std::move(inputs))};
  }

  const char* name() const override { return "CowmlxRotate"; }

 private:
  bool traditional_;
};

mx::array angles(const mx::array& offset, int length, const mx::array& frequencies, float scale) {
  const mx::Stream stream = cpu_stream();
  if (offset.ndim() > 1 || !mx::issubdtype(offset.dtype(), mx::integer))
    refuse("offset is a whole number, or (B,) of them");
  if (frequencies.ndim() != 1 || frequencies.dtype() != mx::float32)
    refuse("frequencies are (dims / 2,) float32");
  if (length < 0) refuse("length is below 0");
  const int rows = offset.ndim() == 0 ? 1 : offset.shape(0);
  Arrays inputs{plain(mx::astype(offset, mx::int32, stream), stream), plain(frequencies, stream)};
  return mx::array({rows, length, 2, frequencies.shape(0)}, mx::float32,
                   std::make_shared<Angles>(stream, scale), std::move(inputs));
}

mx::array rotate(const mx::array& x, const mx::array& angles, bool traditional) {
  const mx::Stream stream = cpu_stream();
  if (x.ndim() < 3 || scalar_of(x, "x") == Scalar::UInt8)
    refuse("x can be float32, float16 or bfloat16, of at least three axes");
  if (angles.ndim() != 4 || angles.dtype() != mx::float32 || angles.shape(2) != 2)
    refuse("angles are what angles() gives");
  if ((angles.shape(0) != 1 && angles.shape(0) != x.shape(0)) || angles.shape(1) != x.shape(-2))
    refuse("angles of " + std::to_string(angles.shape(0)) + " rows of " +
           std::to_string(angles.shape(1)) + " positions do not fit x, which has " +
           std::to_string(x.shape(0)) + " rows of " + std::to_string(x.shape(-2)));
  if (2 * angles.shape(3) > x.shape(-1))
    refuse("angles rotate " + std::to_string(2 * angles.shape(3)) + " numbers; heads of x have " +
           std::to_string(x.shape(-1)));
  return mx::array(x.shape(), x.dtype(), std::make_shared<Rotate>(stream, traditional),
                   Arrays{x, plain(angles, stream)});
}

/* Whether two are the same array: not equal, but one. Python's names of an array outlive what is
 * written to them. */
bool same(const mx::array& a, const mx::array& b) { return a.id() == b.id(); }

}  // namespace

void bind_rope(nb::module_& module) {
  module.def("angles", angles, "offset"_a, "length"_a, "frequencies"_a, nb::kw_only(),
             "scale"_a = 1.0F,
             R"(Cosines and sines of T positions from an offset on, for rotate().

Args:
    offset: the first position, or (B,) one for every row of a batch.
    length: T.
    frequencies: (dims / 2,) float32, angles of position 1.
    scale: positions are multiplied by it.

Returns:
    (1 or B, T, 2, dims / 2) float32.)");
  module.def(
      "held", [](const mx::array& array) { return mx::array(array); }, "array"_a,
      "The array as it is now, whatever is written to the name that was given.");
  module.def("same", same, "a"_a, "b"_a, "Whether both are one array, not only equal.");
  module.def("rotate", rotate, "x"_a, "angles"_a, nb::kw_only(), "traditional"_a = false,
             R"(Rotate the first numbers of every head, (B, ..., T, D), by its position's angles.

Args:
    x: float32, float16 or bfloat16.
    angles: of all rows or of each, as angles() gives them.
    traditional: pairs are neighbours, not halves.)");
}

}  // namespace cowmlx
