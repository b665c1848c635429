/* Attention as mlx.core.fast.scaled_dot_product_attention means it, over plain and quantized
 * caches.
 */
#include <cstring>
#include <variant>

#include "mlx/fast.h"
#include "operation.h"

namespace cowmlx {
namespace {

constexpr int ROWS = 64; /* queries of all heads of a group that are one task */

using Mask = std::optional<std::variant<std::string, mx::array>>;
using Quantized = std::tuple<mx::array, mx::array, mx::array>;

/* What of an attention is no array. */
struct Settings {
  float scale = 1, soft_cap = 0;
  int window = 0, bits = 0, group = 0; /* bits 0: plain keys and values */
  bool causal = false, has_mask = false, has_sinks = false;
};

/* An array's data and strides, the last of which is 1 or nothing. */
struct Strided {
  const char* data;
  int64_t row, head, position; /* in numbers */
  Scalar type;
  int width; /* bytes of a number */

  const void* at(int64_t r, int64_t h) const { return data + (r * row + h * head) * width; }
};

/* As the caches and projections of networks give it; copied where a head's numbers are apart. */
Strided strided(mx::cpu::CommandEncoder& encoder, const mx::array& x) {
  const Scalar type = x.dtype() == mx::uint32 ? Scalar::Float32 : scalar_of(x, "cache");
  const auto width = static_cast<int>(x.itemsize());
  const Strided found{x.data<char>(), x.strides(0), x.strides(1), x.strides(2), type, width};
  if (x.shape(3) < 2 || x.strides(3) == 1) return found;
  const int64_t heads = x.shape(1), length = x.shape(2), dims = x.shape(3);
  auto* copy = temporary<char>(encoder, static_cast<int64_t>(x.nbytes()));
  dispatch(encoder, [=, rows = x.shape(0), step = x.strides(3)] {
    char* to = copy;
    for (int64_t r = 0; r < rows; r++)
      for (int64_t h = 0; h < heads; h++)
        for (int64_t t = 0; t < length; t++)
          for (int64_t d = 0; d < dims; d++, to += width)
            memcpy(to,
                   found.data +
                       (r * found.row + h * found.head + t * found.position + d * step) * width,
                   static_cast<size_t>(width));
  });
  return {copy, heads * length * dims, length * dims, dims, type, width};
}

struct Job {
  const Table* table;
  Settings settings;
  Strided q;
  Strided parts[6]; /* keys, values; quantized: each with scales and biases */
  const char* mask;
  int64_t mask_strides[4];
  int mask_width;
  const float* sinks;
  int rows, groups, heads; /* B, heads of keys and values, query heads of each */
  int queries, positions, key_dim, value_dim;
  void* out;
  Scalar type;
  float* scratch; /* `room` numbers for each worker */
  int64_t room;
  int workers, range; /* queries of a task */

  Cache cache(int which, int64_t row, int64_t group) const {
    const Strided* own = parts + (settings.bits ? 3 * which : which);
    Cache found{};
    found.data = const_cast<void*>(own->at(row, group));
    found.position_stride = own->position;
    found.type = own->type;
    if (settings.bits) {
      found.bits = settings.bits;
      found.group = settings.group;
      found.scales = own[1].at(row, group);
      found.biases = own[2].at(row, group);
      found.scale_position_stride = own[1].position;
      found.scale_type = own[1].type;
    }
    return found;
  }

  /* Queries [from, to) of one row and one group of heads. */
  void attend(int row, int group, int from, int to, float* own) const {
    Attention a{};
    a.heads = heads;
    a.queries = to - from;
    a.key_dim = key_dim;
    a.value_dim = value_dim;
    a.keys = cache(0, row, group);
    a.values = cache(1, row, group);
    a.end = positions;
    a.position = settings.causal ? positions - queries + from : positions;
    a.window = settings.window;
    a.scale = settings.scale;
    a.soft_cap = settings.soft_cap;
    const int64_t first = int64_t{group} * heads;
    if (sinks != nullptr) a.sinks = sinks + first;
    if (mask != nullptr) {
      a.mask_bool = mask_width == 1;
      a.mask_head_stride = mask_strides[1];
      a.mask_stride = mask_strides[2];
      a.mask_position_stride = mask_strides[3];
      a.mask = mask + (row * mask_strides[0] + first * mask_strides[1] + from * mask_strides[2]) *
                          mask_width;
    }
    a.scratch = own;
    own += table->attention_size(key_dim, value_dim);

    const char* query = static_cast<const char*>(q.at(row, first)) + from * q.position * q.width;
    if (q.type == Scalar::Float32) {
      a.query = reinterpret_cast<const float*>(query);
      a.query_stride = q.position;
      a.query_head_stride = q.head;
    } else {
      a.query = own;
      a.query_stride = key_dim;
      a.query_head_stride = int64_t{a.queries} * key_dim;
      for (int head = 0; head < heads; head++)
        for (int t = 0; t < a.queries; t++, own += key_dim)
          table->load(query + (head * q.head + t * q.position) * q.width, q.type, key_dim, own);
    }

    /* Results lie as (B, T, heads, dims), which is how output projections read them. */
    const int64_t all = int64_t{groups} * heads * value_dim;
    const int64_t place = (int64_t{row} * queries + from) * all + first * value_dim;
    if (type == Scalar::Float32) {
      a.out = static_cast<float*>(out) + place;
      a.out_stride = all;
      a.out_head_stride = value_dim;
      table->attention(a);
      return;
    }
    a.out = own;
    a.out_stride = int64_t{heads} * value_dim;
    a.out_head_stride = value_dim;
    table->attention(a);
    for (int t = 0; t < a.queries; t++)
      table->store(own + t * a.out_stride, static_cast<int>(a.out_stride),
                   static_cast<uint16_t*>(out) + place + t * all, type);
  }

  void operator()() const {
    const int ranges = (queries + range - 1) / range;
    share(rows * groups * ranges, workers, [&](int task, int worker) {
      /* The last queries see most: they come first, so that the others even it out. */
      const int from = (ranges - 1 - task % ranges) * range, pair = task / ranges;
      attend(pair / groups, pair % groups, from, std::min(from + range, queries),
             scratch + worker * room);
    });
  }
};

class AttentionOperation : public WithGradient {
 public:
  AttentionOperation(mx::Stream stream, Settings settings, mx::Dtype type)
      : WithGradient(stream), settings_(settings), type_(type) {}

  void eval_cpu(const Arrays& given, mx::array& out) override {
    allocate(out);
    if (out.size() == 0) return;
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const mx::array& input : given) encoder.set_input_array(input);
    encoder.set_output_array(out);
    const bool quantized = settings_.bits != 0;
    const size_t count = quantized ? 6 : 2;
    Job job{};
    job.table = &table();
    job.settings = settings_;
    job.q = strided(encoder, given[0]);
    for (size_t part = 0; part < count; part++) job.parts[part] = strided(encoder, given[1 + part]);
    size_t next = 1 + count;
    if (settings_.has_mask) {
      const mx::array& mask = given[next++];
      job.mask = mask.data<char>();
      job.mask_width = static_cast<int>(mask.itemsize());
      for (int axis = 0; axis < 4; axis++) job.mask_strides[axis] = mask.strides(axis);
    }
    if (settings_.has_sinks) job.sinks = given[next].data<float>();
    const mx::array &q = given[0], &k = given[1];
    job.rows = q.shape(0);
    job.groups = k.shape(1);
    job.heads = q.shape(1) / job.groups;
    job.queries = q.shape(2);
    job.positions = k.shape(2);
    job.key_dim = q.shape(3);
    job.value_dim = out.shape(3);
    job.out = out.data<void>();
    job.type = scalar_of(out, "out");
    /* Whatever number of threads there is, queries are cut in the same places. */
    job.range = std::max(ROWS / job.heads, 16);
    job.workers = threads();
    const int64_t range = int64_t{std::min(job.range, job.queries)} * job.heads;
    job.room = static_cast<int64_t>(job.table->attention_size(job.key_dim, job.value_dim)) +
               range * (job.key_dim + job.value_dim);
    job.scratch = temporary<float>(encoder, job.room * job.workers);
    dispatch(encoder, job);
  }

  const char* name() const override { return "CowmlxAttention"; }

  /* More rows, unless sinks differ between them. */
  std::pair<Arrays, std::vector<int>> vmap(const Arrays& inputs,
                                           const std::vector<int>& axes) override {
    if (settings_.has_sinks && axes.back() >= 0) return WithGradient::vmap(inputs, axes);
    const auto first = static_cast<size_t>(
        std::ranges::find_if(axes, [](int n) { return n >= 0; }) - axes.begin());
    const int rows = inputs[first].shape(axes[first]);
    Arrays given = inputs;
    for (size_t at = 0; at < inputs.size() - settings_.has_sinks; at++)
      given[at] = mx::flatten(rows_first(inputs[at], axes[at], rows), 0, 1, stream());
    const int batch = given[0].shape(0) / rows;
    mx::Shape shape{given[0].shape(0), given[0].shape(1), given[0].shape(2), width(given)};
    const mx::array all(std::move(shape), type_,
                        std::make_shared<AttentionOperation>(stream(), settings_, type_),
                        std::move(given));
    return {{mx::unflatten(all, 0, {rows, batch}, stream())}, {0}};
  }

 protected:
  mx::Dtype type() const override { return type_; }

  mx::array plainly(const Arrays& inputs) override {
    if (settings_.bits || settings_.soft_cap > 0 || settings_.window > 0)
      refuse("attention has no gradient with quantized caches, soft caps or windows");
    std::optional<mx::array> mask, sinks;
    if (settings_.has_mask) mask = inputs[3];
    if (settings_.has_sinks) sinks = inputs.back();
    const auto wide = [&](size_t at) { return mx::astype(inputs[at], mx::float32, stream()); };
    return mx::fast::scaled_dot_product_attention(wide(0), wide(1), wide(2), settings_.scale,
                                                  settings_.causal ? "causal" : "", mask, sinks,
                                                  false, stream());
  }

 private:
  /* How many numbers a head's result has. */
  int width(const Arrays& inputs) const {
    if (settings_.bits == 0) return inputs[2].shape(3);
    return static_cast<int>(int64_t{inputs[4].shape(3)} * 32 / settings_.bits);
  }

  /* (B, H, T, D) that lies as (B, T, H, D). */
  static void allocate(mx::array& out) {
    const int64_t heads = out.shape(1), queries = out.shape(2), dims = out.shape(3);
    mx::array::Flags flags{};
    flags.contiguous = true;
    flags.row_contiguous = heads == 1 || queries == 1;
    flags.col_contiguous = std::ranges::count_if(out.shape(), [](int n) { return n > 1; }) < 2;
    out.set_data(mx::allocator::malloc(out.nbytes()), out.size(),
                 {queries * heads * dims, dims, heads * dims, 1}, flags);
  }

  Settings settings_;
  mx::Dtype type_;
};

void check(const mx::array& x, const std::string& name, int rows) {
  if (x.ndim() != 4)
    refuse(name + " has the shape " + shape_text(x) +
           "; it must be (rows, heads, positions, numbers)");
  if (x.shape(0) != rows)
    refuse(name + " has " + std::to_string(x.shape(0)) + " rows, the queries " +
           std::to_string(rows));
}

void check_numbers(const mx::array& x, const std::string& name) {
  if (scalar_of(x, name) == Scalar::UInt8)
    refuse(name + " is uint8; it can be float32, float16 or bfloat16");
}

/* Put the mask and sinks behind the inputs. */
void add_rest(Arrays& inputs, Settings& settings, const mx::Shape& scores, const Mask& mask,
              const std::optional<mx::array>& sinks, mx::Stream stream) {
  if (mask && std::holds_alternative<std::string>(*mask)) {
    if (std::get<std::string>(*mask) != "causal")
      refuse("mask is \"" + std::get<std::string>(*mask) +
             "\"; it can be None, \"causal\" or an array");
    settings.causal = true;
  } else if (mask) {
    mx::array given = std::get<mx::array>(*mask);
    if (given.dtype() != mx::bool_) {
      check_numbers(given, "mask");
      given = mx::astype(given, mx::float32, stream);
    }
    settings.has_mask = true;
    inputs.push_back(mx::broadcast_to(given, scores, stream));
  }
  if (sinks) {
    if (sinks->ndim() != 1 || sinks->shape(0) != scores[1])
      refuse("sinks have the shape " + shape_text(*sinks) + "; there are " +
             std::to_string(scores[1]) + " heads of queries");
    check_numbers(*sinks, "sinks");
    settings.has_sinks = true;
    inputs.push_back(plain(mx::astype(*sinks, mx::float32, stream), stream));
  }
}

mx::array make(Arrays inputs, Settings settings, int value_dim, mx::Dtype type, const Mask& mask,
               const std::optional<mx::array>& sinks, mx::Stream stream) {
  const mx::array &q = inputs[0], &k = inputs[1], &v = inputs[settings.bits ? 4 : 2];
  check_numbers(q, "q");
  const int heads = k.shape(1), length = k.shape(2);
  if (v.shape(1) != heads || v.shape(2) != length)
    refuse("keys are " + shape_text(k) + " and values " + shape_text(v) +
           ": heads or positions differ");
  if (heads < 1 || q.shape(1) % heads != 0)
    refuse(std::to_string(q.shape(1)) + " heads of queries are no multiple of " +
           std::to_string(heads) + " heads of keys");
  if (settings.window < 0) refuse("window is below 0");
  const mx::Shape scores{q.shape(0), q.shape(1), q.shape(2), length};
  mx::Shape shape{q.shape(0), q.shape(1), q.shape(2), value_dim};
  add_rest(inputs, settings, scores, mask, sinks, stream);
  if (settings.window > 0 && !settings.causal) refuse("a window needs the mask \"causal\"");
  return mx::array(std::move(shape), type,
                   std::make_shared<AttentionOperation>(stream, settings, type), std::move(inputs));
}

mx::array attention(const mx::array& q, const mx::array& k, const mx::array& v, float scale,
                    const Mask& mask, const std::optional<mx::array>& sinks, float soft_cap,
                    int window) {
  const mx::Stream stream = cpu_stream();
  if (q.ndim() != 4) refuse("q has the shape " + shape_text(q) + "; it has four axes");
  check(k, "k", q.shape(0));
  check(v, "v", q.shape(0));
  check_numbers(k, "k");
  check_numbers(v, "v");
  if (q.shape(3) != k.shape(3))
    refuse("queries have " + std::to_string(q.shape(3)) + " numbers, keys " +
           std::to_string(k.shape(3)));
  const mx::Dtype type = mx::promote_types(q.dtype(), mx::promote_types(k.dtype(), v.dtype()));
  const Settings settings{.scale = scale, .soft_cap = soft_cap, .window = window};
  return make({q, k, v}, settings, v.shape(3), type, mask, sinks, stream);
}

/* How wide the numbers of a head are. */
int check_quantized(const Quantized& quantized, const std::string& name, int rows, int bits,
                    int group) {
  const auto& [weight, scales, biases] = quantized;
  check(weight, name, rows);
  if (weight.dtype() != mx::uint32) refuse(name + " are not quantized: no uint32");
  check_numbers(scales, name + "' scales");
  const int64_t width = int64_t{weight.shape(3)} * 32 / bits;
  if (width % group != 0)
    refuse(name + " of " + std::to_string(width) + " numbers are no whole number of groups of " +
           std::to_string(group));
  mx::Shape shape = weight.shape();
  shape[3] = static_cast<int>(width / group);
  if (scales.shape() != shape || biases.shape() != shape || scales.dtype() != biases.dtype())
    refuse("scales and biases of " + name + " do not fit its groups");
  return static_cast<int>(width);
}

mx::array attention_quantized(const mx::array& q, const Quantized& k, const Quantized& v,
                              float scale, int bits, int group, const Mask& mask) {
  const mx::Stream stream = cpu_stream();
  if (q.ndim() != 4) refuse("q has the shape " + shape_text(q) + "; it has four axes");
  if ((bits != 4 && bits != 8) || group < 32 || group % 32 != 0)
    refuse("no kernel reads caches of " + std::to_string(bits) + " bits in groups of " +
           std::to_string(group));
  const int key_dim = check_quantized(k, "keys", q.shape(0), bits, group);
  const int value_dim = check_quantized(v, "values", q.shape(0), bits, group);
  if (q.shape(3) != key_dim)
    refuse("queries have " + std::to_string(q.shape(3)) + " numbers, keys " +
           std::to_string(key_dim));
  const Settings settings{.scale = scale, .bits = bits, .group = group};
  Arrays inputs{q,
                std::get<0>(k),
                std::get<1>(k),
                std::get<2>(k),
                std::get<0>(v),
                std::get<1>(v),
                std::get<2>(v)};
  return make(std::move(inputs), settings, value_dim, q.dtype(), mask, std::nullopt, stream);
}

}  // namespace

void bind_attention(nb::module_& module) {
  module.def("attention", attention, "q"_a, "k"_a, "v"_a, nb::kw_only(), "scale"_a,
             "mask"_a = nb::none(), "sinks"_a = nb::none(), "soft_cap"_a = 0.0F, "window"_a = 0,
             R"(softmax(q k^T * scale + mask) v, as mlx.core.fast.scaled_dot_product_attention.

A query that sees nothing gives 0.

Args:
    q: (B, H, T, D) float32, float16 or bfloat16; sums are float32.
    k: (B, G, S, D), where G divides H.
    v: (B, G, S, E).
    scale: of the scores.
    mask: None, "causal" (the last query sees all, each before it one position less), or an
        array that broadcasts to (B, H, T, S): bool, or numbers that are added to the scores.
    sinks: (H,) logits that take part in the softmax alone.
    soft_cap: scores become soft_cap * tanh(score / soft_cap); 0: they do not.
    window: with the mask "causal" a query sees only so many positions; 0: all.

Returns:
    (B, H, T, E) of the type that q, k and v promote to.)");
  module.def("attention_quantized", attention_quantized, "q"_a, "k"_a, "v"_a, nb::kw_only(),
             "scale"_a, "bits"_a, "group"_a, "mask"_a = nb::none(),
             R"(The same over keys and values as mlx.core.quantize packs them in mode affine.

Args:
    q: (B, H, T, D).
    k: (weights, scales, biases) of (B, G, S, D).
    v: (weights, scales, biases) of (B, G, S, E).
    scale, mask: as for attention().
    bits: of a number: 4 or 8.
    group: numbers that share a scale: a multiple of 32.)");
}

}  // namespace cowmlx
