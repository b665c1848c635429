/* Products with a matrix in blocks, and its rows. */
#include <limits>
#include <unordered_map>

#include "kept.h"
#include "operation.h"
#include "recording.h"
#include "row_batch.h"

namespace cowmlx {
namespace {

constexpr int TILE = 256;               /* rows of activations that are prepared together */
constexpr int MANY_TILES = 4;           /* for each thread: from so many on it takes them whole */
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
    if (groups > threads()) groups = (groups + threads() - 1) / threads() * threads();
    group = (blocks + groups - 1) / groups; /* of one size, so that all threads end together */
    groups = (blocks + group - 1) / group;
  }
};

/* What one evaluation of a product reads and writes. */
struct Job {
  const Table* table; /* by which scratch was measured */
  Matrix matrix;
  Activations x;
  bool rounded;
  float* values;      /* (M, K) for activations that are not direct */
  char* scratch;      /* a part for each tile */
  int64_t part;       /* its bytes */
  Prepared* prepared; /* of each tile */
  void* out;
  Scalar out_type;
  Cut cut;
  bool positive = false; /* results below 0 are 0; of float32 */

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
    table->prepare(matrix, from, x.columns(), rows_of(tile), rounded, scratch + tile * part,
                   prepared + tile);
  }

  void compute(int tile, int group) const {
    const int from = group * cut.group, to = std::min(from + cut.group, matrix.blocks());
    const int rows = rows_of(tile);
    const int64_t first = int64_t{tile} * cut.tile, stride = matrix.rows;
    if (out_type == Scalar::Float32) {
      float* y = static_cast<float*>(out) + first * stride;
      table->product(matrix, prepared[tile], from, to, 0, rows, y, stride);
      const int begin = from * LANES, count = std::min(matrix.rows, to * LANES) - begin;
      for (int row = 0; positive && row < rows; row++) {
        float* part = y + row * stride + begin;
        table->gate(Activation::Relu, part, nullptr, count, part);
      }
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
    if (cut.tiles % threads() == 0 || cut.tiles >= MANY_TILES * threads()) {
      parallel(cut.tiles, [&](int tile) { /* whose rows are in a core's cache then */
                                          prepare(tile);
                                          for (int group = 0; group < cut.groups; group++)
                                            compute(tile, group);
      });
      return;
    }
    parallel(cut.tiles, [&](int tile) { prepare(tile); });
    parallel(cut.tiles * cut.groups,
             [&](int index) { compute(index % cut.tiles, index / cut.tiles); });
  }
};

/* The job of a product, whose memory lasts until the operation is done. */
Job job_of(const mx::array& input, const Matrix& matrix, bool rounded, mx::array& out,
           mx::cpu::CommandEncoder& encoder) {
  const Scalar type = scalar_of(out, "x");
  const Activations x(input);
  const Cut cut(matrix, x.rows(), type != Scalar::Float32);
  const Table& used = table();
  const int64_t size = used.prepare_size(matrix, cut.tile, rounded);
  const int64_t part = (size + 63) / 64 * 64;
  auto* values = x.direct() ? nullptr : temporary<float>(encoder, x.rows() * x.columns());
  auto* scratch = temporary<char>(encoder, part * cut.tiles);
  auto* prepared = temporary<Prepared>(encoder, cut.tiles);
  return {&used, matrix, x, rounded, values, scratch, part, prepared, out.data<void>(), type, cut};
}

class Product : public Operation {
 public:
  Product(mx::Stream stream, Layout layout, bool rounded)
      : Operation(stream), layout_(layout), rounded_(rounded) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    dispatch(encoder, job_of(inputs[0], layout_.matrix(inputs, 1), rounded_, out, encoder));
  }

  const char* name() const override { return "CowmlxProduct"; }

 private:
  Layout layout_;
  bool rounded_;
};

mx::array product(const mx::array& x, const mx::array& weight,
                  const std::optional<mx::array>& scales, const std::optional<mx::array>& biases,
                  const std::optional<mx::array>& bias, int rows, const std::string& mode, int bits,
                  int group, bool rounded) {
  const mx::Stream stream = cpu_stream();
  if (x.ndim() < 1 || scalar_of(x, "x") == Scalar::UInt8)
    refuse("x can be float32, float16 or bfloat16, of at least one axis");
  Arrays inputs{x};
  const Layout layout =
      add_matrix(inputs, weight, scales, biases, bias, rows, mode, bits, group, stream);
  if (x.shape(-1) != layout.columns)
    refuse("the last axis of x is " + std::to_string(x.shape(-1)) + " wide; the matrix takes " +
           std::to_string(layout.columns));
  mx::Shape shape = x.shape();
  shape.back() = rows;
  const bool rounds = rounded && (layout.has_scales || x.dtype() == mx::bfloat16);
  return mx::array(std::move(shape), x.dtype(), std::make_shared<Product>(stream, layout, rounds),
                   std::move(inputs));
}

/* ---- products with a matrix of another operation's memory ---- */

constexpr int64_t PACK_CHUNK = 1 << 14; /* numbers that one thread packs at a time: some µs */

/* Lays a float32 matrix in blocks. */
struct Packing {
  const Table* table;
  std::optional<Copy> copy; /* of a matrix that lies otherwise */
  const float* weight;      /* (N, K), or (K, N) if it is turned */
  bool turned;
  int rows, columns;
  float* to;

  Packing(const mx::array& matrix, float* packed, bool reads, mx::cpu::CommandEncoder& encoder)
      : table(&cowmlx::table()),
        weight(nullptr),
        turned(matrix.strides(0) != 1 || matrix.strides(1) != matrix.shape(0)),
        rows(matrix.shape(1)),
        columns(matrix.shape(0)),
        to(packed) {
    if (reads) weight = turned ? lying(matrix, encoder, copy) : matrix.data<float>();
  }

  int blocks() const { return (rows + LANES - 1) / LANES; }

  void pack(int block) const {
    const int first = block * LANES;
    float* out = to + int64_t{block} * columns * LANES;
    if (!turned) {
      for (int lane = 0; lane < LANES; lane += 4) {
        const float* four[4];
        for (int m = 0; m < 4; m++) /* filling is not written */
          four[m] = weight + int64_t{std::min(first + lane + m, rows - 1)} * columns;
        table->beside(four, columns, LANES, out + lane);
      }
      return;
    }
    const int lanes = std::min(LANES, rows - first);
    const float* from = weight + first;
    for (int k = 0; k < columns; k++, from += rows, out += LANES) {
      std::copy_n(from, lanes, out);
      std::fill(out + lanes, out + LANES, 0.0F);
    }
  }

  void operator()() const {
    if (copy) copy->run();
    const auto step =
        static_cast<int>(std::max<int64_t>(1, PACK_CHUNK / (int64_t{columns} * LANES)));
    parallel((blocks() + step - 1) / step, [&](int part) {
      for (int block = part * step; block < std::min(blocks(), (part + 1) * step); block++)
        pack(block);
    });
  }
};

/* A product, and before it what lays the matrix in blocks. */
struct DenseJob {
  Job job;
  Blocks held;
  Packing packing;
  std::optional<Copy> bias; /* that lies otherwise */

  void operator()() const {
    const Series series;
    if (bias) bias->run();
    if (held.packs) {
      packing();
      held.filled();
    }
    job();
  }
};

/* Numbers of a matrix in blocks. */
int64_t in_blocks(int columns, int rows) {
  return int64_t{(rows + LANES - 1) / LANES} * LANES * columns;
}

Matrix dense(const float* packed, int rows, int columns, const float* bias) {
  return {Format::Float32, 32, 0, rows, columns, packed, nullptr, nullptr, Scalar::Float32, bias};
}

class Dense : public Operation, public Extensible {
 public:
  Dense(mx::Stream stream, bool biased, bool positive)
      : Operation(stream), biased_(biased), positive_(positive) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    const mx::array& weight = inputs[1];
    const int columns = weight.shape(0), rows = weight.shape(1);
    const Blocks held = keeper_.find(weight, 1, in_blocks(columns, rows), encoder);
    const Packing packing(weight, held.packed, held.packs, encoder);
    std::optional<Copy> copy;
    const float* bias = biased_ ? lying(inputs[2], encoder, copy) : nullptr;
    Job job = job_of(inputs[0], dense(held.packed, rows, columns, bias), false, out, encoder);
    job.positive = positive_;
    dispatch(encoder, DenseJob{job, held, packing, copy});
  }

  const char* name() const override { return "CowmlxDense"; }

  std::shared_ptr<mx::Primitive> with_bias() override {
    if (biased_ || positive_) return nullptr;
    return std::make_shared<Dense>(stream(), true, false);
  }
  std::shared_ptr<mx::Primitive> with_relu() override {
    if (positive_) return nullptr;
    return std::make_shared<Dense>(stream(), biased_, true);
  }

 private:
  bool biased_, positive_;
  Keeper keeper_;
};

/* ---- products by rows with a small matrix that several of them read ---- */

constexpr int FEW_READERS = 3; /* of a matrix that is not laid in blocks for them */
constexpr int64_t MOST_SHARED =
    1 << 16; /* numbers of a matrix: each part of rows reads all of it */

/* A matrix (K, N) in blocks, for other operations. */
class Packed : public Operation {
 public:
  using Operation::Operation;

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    dispatch(encoder, Packing(inputs[0], out.data<float>(), true, encoder));
  }

  const char* name() const override { return "CowmlxPacked"; }
};

struct RowsJob {
  const Table* table;
  Matrix matrix;
  std::optional<Copy> copy;
  const float* x;
  float* out;
  int64_t count; /* of rows */
  int workers;

  void rows(int64_t begin, int64_t end, int) const {
    const float* places[WINDOWS];
    for (int many; begin < end; begin += many) {
      many = static_cast<int>(std::min<int64_t>(end - begin, WINDOWS));
      if (end - begin == BATCH_ROWS) many = BATCH_ROWS / 2; /* tiles of one size are faster */
      for (int at = 0; at < WINDOWS; at++)
        places[at] = x + (begin + std::min(at, many - 1)) * matrix.columns;
      table->multiply_windows(matrix, {places, 1, many}, 0, matrix.blocks(), false,
                              out + begin * matrix.rows, matrix.rows);
    }
  }

  void operator()() const {
    if (copy) copy->run();
    share(static_cast<int>((count + BATCH_ROWS - 1) / BATCH_ROWS), workers,
          [&](int index, int worker) {
            const int64_t begin = int64_t{index} * BATCH_ROWS;
            rows(begin, std::min(begin + BATCH_ROWS, count), worker);
          });
  }
};

/* x (M, K) times a matrix in blocks. */
class RowsProduct : public Operation {
 public:
  using Operation::Operation;

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    const mx::array& x = inputs[0];
    const Matrix matrix = dense(inputs[1].data<float>(), out.shape(1), x.shape(1), nullptr);
    RowsJob job{&table(), matrix, {}, nullptr, out.data<float>(), x.shape(0), threads()};
    job.x = lying(x, encoder, job.copy);
    const int64_t rows = job.copy ? 0 : job.count;
    dispatch_rows(encoder, {{&x}, {&inputs[1]}}, {out}, rows, std::move(job));
  }

  const char* name() const override { return "CowmlxRowsProduct"; }
};

/* ---- rows of a matrix as numbers ---- */

constexpr int TAKE_CHUNK = 16; /* rows of embeddings that one thread takes at a time */

/* Rows of a matrix as numbers. */
struct TakeJob {
  Matrix matrix;
  Integers indices;
  int64_t count;
  float* values; /* a row for each chunk, where the result is no float32 */
  void* out;
  Scalar out_type;

  void row(const Table& table, int64_t place, float* spare) const {
    const int columns = matrix.columns;
    float* to = spare != nullptr ? spare : static_cast<float*>(out) + place * columns;
    int64_t index = indices.at(place);
    if (index < 0) index += matrix.rows;
    if (index >= 0 && index < matrix.rows) {
      table.row_numbers(matrix, static_cast<int>(index), to);
    } else { /* there is no error to return here: nan spreads instead */
      std::fill_n(to, columns, std::numeric_limits<float>::quiet_NaN());
    }
    if (spare != nullptr)
      table.store(spare, columns, static_cast<uint16_t*>(out) + place * columns, out_type);
  }

  void operator()() const {
    const Table& used = table();
    parallel(static_cast<int>((count + TAKE_CHUNK - 1) / TAKE_CHUNK), [&](int chunk) {
      const int64_t first = int64_t{chunk} * TAKE_CHUNK;
      float* spare = values != nullptr ? values + int64_t{chunk} * matrix.columns : nullptr;
      for (int64_t place = first; place < std::min(first + TAKE_CHUNK, count); place++)
        row(used, place, spare);
    });
  }
};

class Take : public Operation {
 public:
  Take(mx::Stream stream, Layout layout) : Operation(stream), layout_(layout) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    const auto count = static_cast<int64_t>(inputs[0].size());
    const Scalar type = scalar_of(out, "out");
    const int64_t spare = (count + TAKE_CHUNK - 1) / TAKE_CHUNK * layout_.columns;
    auto* values = type == Scalar::Float32 ? nullptr : temporary<float>(encoder, spare);
    dispatch(encoder, TakeJob{layout_.matrix(inputs, 1), Integers(inputs[0]), count, values,
                              out.data<void>(), type});
  }

  const char* name() const override { return "CowmlxTake"; }

 private:
  Layout layout_;
};

mx::array take(const mx::array& indices, const mx::array& weight,
               const std::optional<mx::array>& scales, const std::optional<mx::array>& biases,
               int rows, const std::string& mode, int bits, int group, mx::Dtype dtype) {
  const mx::Stream stream = cpu_stream();
  if (!mx::issubdtype(indices.dtype(), mx::integer)) refuse("indices are whole numbers");
  if (dtype != mx::float32 && dtype != mx::float16 && dtype != mx::bfloat16)
    refuse("dtype can be float32, float16 or bfloat16");
  Arrays inputs{plain(indices, stream)};
  const Layout layout =
      add_matrix(inputs, weight, scales, biases, std::nullopt, rows, mode, bits, group, stream);
  mx::Shape shape = indices.shape();
  shape.push_back(layout.columns);
  return mx::array(std::move(shape), dtype, std::make_shared<Take>(stream, layout),
                   std::move(inputs));
}

}  // namespace

std::shared_ptr<mx::Primitive> dense_product(mx::Stream stream) {
  return std::make_shared<Dense>(stream, false, false);
}

void pack_matrices(std::vector<Recorded>& steps, std::vector<mx::array>& arrays) {
  const auto is_product = [&](const Recorded& step) {
    if (!is(*step.primitive, "Matmul") || step.dtypes[0] != mx::float32) return false;
    const mx::Shape &out = step.shapes[0], &matrix = arrays[step.inputs[1]].shape();
    const int64_t numbers = int64_t{matrix[0]} * matrix.back();
    return out.size() == 2 && out[0] > 0 && out[1] >= LANES / 2 && numbers > 0 &&
           numbers <= MOST_SHARED;
  };
  std::unordered_map<uint32_t, int> readers;
  for (const Recorded& step : steps)
    if (is_product(step)) readers[step.inputs[1]]++;
  std::unordered_map<uint32_t, uint32_t> packed;
  std::vector<Recorded> made;
  for (Recorded& step : steps) {
    if (is_product(step) && readers[step.inputs[1]] >= FEW_READERS) {
      uint32_t& place = step.inputs[1];
      const mx::Stream stream = step.primitive->stream();
      const auto [found, is_first] =
          packed.try_emplace(place, static_cast<uint32_t>(arrays.size()));
      if (is_first) {
        const mx::array from = arrays[place];
        const auto size = static_cast<int>(in_blocks(from.shape(0), from.shape(1)));
        arrays.emplace_back(mx::Shape{size}, mx::float32, std::make_shared<Packed>(stream),
                            std::vector<mx::array>{from});
        made.push_back({arrays.back().primitive_ptr(),
                        {place},
                        {found->second},
                        {arrays.back().shape()},
                        {mx::float32}});
      }
      step.primitive = std::make_shared<RowsProduct>(stream);
      place = found->second;
    }
    made.push_back(std::move(step));
  }
  steps = std::move(made);
}

void bind_product(nb::module_& module) {
  module.def("product", product, "x"_a, "weight"_a, "scales"_a = nb::none(),
             "biases"_a = nb::none(), "bias"_a = nb::none(), nb::kw_only(), "rows"_a,
             "mode"_a = "dense", "bits"_a = 0, "group"_a = 0, "rounded"_a = false,
             R"(x times the transpose of a matrix: (..., K) by (N, K) to (..., N) of x's type.

Args:
    x: float32, float16 or bfloat16; sums are float32.
    weight: the matrix as pack() gives it, (blocks, words, 16); quantized ones uint32.
    scales: pack() of the scales of quantized weights.
    biases: pack() of the biases of mode affine.
    bias: (N,) float32 added to every row of the result.
    rows: N.
    mode: dense, or a mode of mlx.core.quantize.
    bits: of a quantized number.
    group: numbers that share a scale.
    rounded: round every group of x's numbers to eight bits where weights are quantized, and x of
        bfloat16 to that type where weights have it and the instruction set multiplies such numbers.)");
  module.def("take", take, "indices"_a, "weight"_a, "scales"_a = nb::none(),
             "biases"_a = nb::none(), nb::kw_only(), "rows"_a, "mode"_a = "dense", "bits"_a = 0,
             "group"_a = 0, "dtype"_a,
             R"(Rows of a matrix as numbers, such as embeddings: (...) indices to (..., K).

Args:
    indices: whole numbers; negative ones count from the end. Rows out of range are NaN.
    weight, scales, biases, rows, mode, bits, group: as product() takes them.
    dtype: of the result.)");
}

}  // namespace cowmlx
