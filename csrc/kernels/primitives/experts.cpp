/* Mixture of experts: each row times the matrix of the expert that was chosen for it. */
#include <limits>

#include "operation.h"

namespace cowmlx {
namespace {

constexpr int SLOTS = 64;               /* segments whose rows are prepared at the same time */
constexpr int64_t CHUNK_WORK = 1 << 16; /* weights of a chunk times rows: some µs */

/* Matrices of the same shape behind each other, each filled up to whole blocks. */
struct Experts {
  Matrix all;      /* as if they were one */
  int count, rows; /* E, N */
  int64_t words;   /* bytes of a block's words, scales and biases */
  int64_t scales;
  const float* bias; /* (E, N), or null */

  Matrix of(int expert) const {
    Matrix found = all;
    const int64_t block = int64_t{expert} * ((rows + LANES - 1) / LANES);
    found.rows = rows;
    found.weight = static_cast<const char*>(all.weight) + block * words;
    if (all.scales != nullptr) found.scales = static_cast<const char*>(all.scales) + block * scales;
    if (all.biases != nullptr) found.biases = static_cast<const char*>(all.biases) + block * scales;
    found.bias = bias != nullptr ? bias + int64_t{expert} * rows : nullptr;
    return found;
  }
};

/* Rows of one expert, numbers [begin, begin + rows) in the order of experts: at most SMALL_ROWS, so
 * that a row's result does not depend on how many others chose the same one. */
struct Segment {
  int expert, begin, rows;
};

struct Job {
  const Table* table;
  Experts experts;
  Activations x;
  Integers indices;
  bool rounded;
  int rows;          /* R */
  int32_t* chosen;   /* (R,) the experts, or -1 */
  int32_t* order;    /* (R,) rows by experts */
  int32_t* starts;   /* (E + 1,) */
  Segment* segments; /* for the largest number of them */
  /* for each slot: */
  float* values;  /* (SMALL_ROWS, K) */
  float* results; /* (SMALL_ROWS, N) */
  char* scratch;
  int64_t part; /* its bytes */
  Prepared* prepared;
  void* out;
  Scalar type;

  /* Find the experts of all rows; those that there are not spoil theirs. */
  void choose() const {
    for (int row = 0; row < rows; row++) {
      const int64_t index = indices.at(row);
      const bool is_known = index >= 0 && index < experts.count;
      chosen[row] = is_known ? static_cast<int32_t>(index) : -1;
      if (!is_known) spoil(row);
    }
  }

  /* Counting sort; what no expert is chosen for gets no numbers. How many segments there are. */
  int cut() const {
    std::fill_n(starts, experts.count + 1, 0);
    for (int row = 0; row < rows; row++)
      if (chosen[row] >= 0) starts[chosen[row] + 1]++;
    for (int expert = 0; expert < experts.count; expert++) starts[expert + 1] += starts[expert];
    const int known_rows = starts[experts.count];
    for (int row = rows - 1; row >= 0; row--)
      if (chosen[row] >= 0) order[--starts[chosen[row] + 1]] = row;
    int found = 0;
    for (int expert = 0; expert < experts.count; expert++) {
      /* starts[e + 1] has become where expert e begins. */
      const int begin = starts[expert + 1];
      const int end = expert + 1 < experts.count ? starts[expert + 2] : known_rows;
      for (int at = begin; at < end; at += SMALL_ROWS)
        segments[found++] = {expert, at, std::min(SMALL_ROWS, end - at)};
    }
    return found;
  }

  void prepare(int slot, const Segment& segment) const {
    const int64_t columns = x.columns();
    float* own = values + slot * SMALL_ROWS * columns;
    for (int row = 0; row < segment.rows; row++)
      x.read(*table, order[segment.begin + row], 1, own + row * columns);
    table->prepare(experts.of(segment.expert), own, columns, segment.rows, rounded,
                   scratch + slot * part, prepared + slot);
  }

  void compute(int slot, const Segment& segment, int from, int to) const {
    const int64_t n = experts.rows;
    float* own = results + slot * SMALL_ROWS * n;
    table->product(experts.of(segment.expert), prepared[slot], from, to, 0, segment.rows, own, n);
    const int64_t column = int64_t{from} * LANES;
    const int64_t count = std::min<int64_t>(n, int64_t{to} * LANES) - column;
    const int width = type == Scalar::Float32 ? 4 : 2;
    for (int row = 0; row < segment.rows; row++)
      table->store(own + row * n + column, static_cast<int>(count),
                   static_cast<char*>(out) + (order[segment.begin + row] * n + column) * width,
                   type);
  }

  /* There is no error to return here: nan spreads instead. */
  void spoil(int64_t row) const {
    const float none = std::numeric_limits<float>::quiet_NaN();
    const int width = type == Scalar::Float32 ? 4 : 2;
    for (int64_t i = 0; i < experts.rows; i++)
      table->store(&none, 1, static_cast<char*>(out) + (row * experts.rows + i) * width, type);
  }

  void operator()() const {
    choose();
    const int count = cut();
    const int blocks = (experts.rows + LANES - 1) / LANES;
    const int64_t work = int64_t{x.columns()} * LANES * std::clamp(rows / 8, 1, SMALL_ROWS);
    const int group = static_cast<int>(std::clamp<int64_t>(CHUNK_WORK / work, 1, blocks));
    const int groups = (blocks + group - 1) / group;
    for (int first = 0; first < count; first += SLOTS) {
      const Segment* own = segments + first;
      const int slots = std::min(SLOTS, count - first);
      parallel(slots, [&](int slot) { prepare(slot, own[slot]); });
      parallel(slots * groups, [&](int index) {
        const int slot = index / groups, from = index % groups * group;
        compute(slot, own[slot], from, std::min(from + group, blocks));
      });
    }
  }
};

class ExpertsOperation : public Operation {
 public:
  ExpertsOperation(mx::Stream stream, Layout layout, int experts, int rows, bool has_bias,
                   bool rounded)
      : Operation(stream),
        layout_(layout),
        experts_(experts),
        rows_(rows),
        has_bias_(has_bias),
        rounded_(rounded) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    const mx::array& weight = inputs[2];
    const size_t behind = 2 + static_cast<size_t>(layout_.inputs());
    Experts experts{layout_.matrix(inputs, 2), experts_, rows_, 0, 0, nullptr};
    experts.words = int64_t{weight.shape(1)} * LANES * static_cast<int64_t>(weight.itemsize());
    if (layout_.has_scales)
      experts.scales =
          int64_t{inputs[3].shape(1)} * LANES * static_cast<int64_t>(inputs[3].itemsize());
    if (has_bias_) experts.bias = inputs[behind].data<float>();

    const Table& used = table();
    const auto rows = static_cast<int>(inputs[1].size());
    const int most = rows / SMALL_ROWS + std::min(rows, experts_);
    const int slots = std::min(SLOTS, most), tile = std::min(rows, SMALL_ROWS);
    const auto size = static_cast<int64_t>(used.prepare_size(experts.of(0), tile, rounded_));
    const int64_t part = (size + 63) / 64 * 64, held = int64_t{slots} * SMALL_ROWS;
    dispatch(
        encoder,
        Job{&used, experts, Activations(inputs[0]), Integers(inputs[1]), rounded_, rows,
            temporary<int32_t>(encoder, rows), temporary<int32_t>(encoder, rows),
            temporary<int32_t>(encoder, experts_ + 1), temporary<Segment>(encoder, most),
            temporary<float>(encoder, held * layout_.columns),
            temporary<float>(encoder, held * rows_), temporary<char>(encoder, part * slots), part,
            temporary<Prepared>(encoder, slots), out.data<void>(), scalar_of(out, "out")});
  }

  const char* name() const override { return "CowmlxExperts"; }

 private:
  Layout layout_;
  int experts_, rows_;
  bool has_bias_, rounded_;
};

mx::array experts(const mx::array& x, const mx::array& indices, const mx::array& weight,
                  const std::optional<mx::array>& scales, const std::optional<mx::array>& biases,
                  const std::optional<mx::array>& bias, int count, int rows,
                  const std::string& mode, int bits, int group, bool rounded) {
  const mx::Stream stream = cpu_stream();
  if (x.ndim() < 1 || scalar_of(x, "x") == Scalar::UInt8)
    refuse("x can be float32, float16 or bfloat16, of at least one axis");
  if (!mx::issubdtype(indices.dtype(), mx::integer)) refuse("indices are whole numbers");
  if (indices.size() > std::numeric_limits<int>::max() / 2)
    refuse("there are too many indices: " + std::to_string(indices.size()));
  if (count < 1 || rows < 1 || rows > (1 << 24) || count > (1 << 16))
    refuse("there are " + std::to_string(count) + " experts of " + std::to_string(rows) + " rows");
  const int filled = (rows + LANES - 1) / LANES * LANES;
  if (int64_t{filled} * count > std::numeric_limits<int>::max())
    refuse("the experts have too many rows together");
  mx::Shape shape = indices.shape();
  shape.push_back(x.shape(-1));
  Arrays inputs{mx::broadcast_to(x, shape, stream), plain(indices, stream)};
  const Layout layout = add_matrix(inputs, weight, scales, biases, std::nullopt, filled * count,
                                   mode, bits, group, stream);
  if (x.shape(-1) != layout.columns)
    refuse("the last axis of x is " + std::to_string(x.shape(-1)) + " wide; the matrices take " +
           std::to_string(layout.columns));
  if (bias) {
    if (bias->ndim() != 2 || bias->shape(0) != count || bias->shape(1) != rows)
      refuse("bias must be (" + std::to_string(count) + ", " + std::to_string(rows) + ")");
    inputs.push_back(plain(mx::astype(*bias, mx::float32, stream), stream));
  }
  shape.back() = rows;
  const bool rounds = rounded && (layout.has_scales || x.dtype() == mx::bfloat16);
  return mx::array(
      std::move(shape), x.dtype(),
      std::make_shared<ExpertsOperation>(stream, layout, count, rows, bias.has_value(), rounds),
      std::move(inputs));
}

}  // namespace

void bind_experts(nb::module_& module) {
  module.def("experts", experts, "x"_a, "indices"_a, "weight"_a, "scales"_a = nb::none(),
             "biases"_a = nb::none(), "bias"_a = nb::none(), nb::kw_only(), "count"_a, "rows"_a,
             "mode"_a = "dense", "bits"_a = 0, "group"_a = 0, "rounded"_a = false,
             R"(Each row times the transpose of the matrix that its index names.

Args:
    x: (..., K) float32, float16 or bfloat16, of a shape that broadcasts to (*indices.shape, K).
    indices: whole numbers below E. Rows of others are NaN.
    weight: pack() of (E * N', words), the experts' rows, each expert's N filled up with zeros to
        N', a multiple of 16; quantized ones uint32.
    scales: pack() of the scales of quantized weights, filled up in the same way.
    biases: pack() of the biases of mode affine.
    bias: (E, N) added to results.
    count: E.
    rows: N.
    mode, bits, group, rounded: as product() takes them.

Returns:
    (*indices.shape, N) of x's type.)");
}

}  // namespace cowmlx
