/* Attention whose gradient is computed, too, by kernels: heads are read and written where
 * projections have them. */
#include "mlx/fast.h"
#include "operation.h"
#include "recording.h"

namespace cowmlx {
namespace {

struct Settings {
  float scale = 1;
  bool causal = false, has_mask = false;
};

/* An array (B, H, T, D) as kernels read it; copied before where a head's numbers lie apart. */
struct Operand {
  std::optional<Copy> copy;
  const float* data;
  int64_t row, head, position;

  Operand(const mx::array& x, mx::cpu::CommandEncoder& encoder)
      : data(x.data<float>()), row(x.strides(0)), head(x.strides(1)), position(x.strides(2)) {
    if (x.strides(3) == 1 || x.shape(3) == 1) return;
    data = lying(x, encoder, copy);
    position = x.shape(3);
    head = position * x.shape(2);
    row = head * x.shape(1);
  }

  Heads at(int64_t r, int64_t h) const { return {data + r * row + h * head, head, position}; }
};

/* A result (B, H, T, D) that lies as (B, T, H, D). */
struct Result {
  float* data;
  int64_t row, head, position;

  explicit Result(mx::array& x) : head(x.shape(3)), position(head * x.shape(1)) {
    row = position * x.shape(2);
    mx::array::Flags flags{};
    flags.contiguous = true;
    flags.row_contiguous = x.shape(1) == 1 || x.shape(2) == 1;
    flags.col_contiguous = std::ranges::count_if(x.shape(), [](int n) { return n > 1; }) < 2;
    x.set_data(mx::allocator::malloc(x.nbytes()), x.size(), {row, head, position, 1}, flags);
    data = x.data<float>();
  }

  HeadsTo at(int64_t r, int64_t h) const { return {data + r * row + h * head, head, position}; }
};

/* The parts that attention and its gradient share. */
struct Job {
  const Table* table;
  TrainedAttention attention; /* without what depends on the row and the head */
  Operand q, k, v;
  const char* mask = nullptr;
  int64_t mask_row = 0; /* in numbers, as those in `attention` */
  int mask_width = 1;
  int rows, groups, heads; /* heads: of queries, that share one of keys and values */
  int64_t room;            /* floats of scratch of a worker */
  float* scratch;
  int workers;

  /* Inputs: q, k, v and, perhaps, a mask. */
  Job(const Settings& settings, const Arrays& inputs, mx::cpu::CommandEncoder& encoder)
      : table(&cowmlx::table()),
        attention{},
        q(inputs[0], encoder),
        k(inputs[1], encoder),
        v(inputs[2], encoder),
        rows(inputs[0].shape(0)),
        groups(inputs[1].shape(1)),
        heads(inputs[0].shape(1) / groups),
        workers(threads()) {
    attention.queries = inputs[0].shape(2);
    attention.positions = inputs[1].shape(2);
    attention.key_dim = inputs[1].shape(3);
    attention.value_dim = inputs[2].shape(3);
    attention.scale = settings.scale;
    attention.causal = settings.causal;
    if (settings.has_mask) {
      const mx::array& given = inputs[3];
      mask = given.data<char>();
      mask_width = static_cast<int>(given.itemsize());
      mask_row = given.strides(0);
      attention.mask_bool = given.dtype() == mx::bool_;
      attention.mask_head = given.strides(1);
      attention.mask_row = given.strides(2);
      attention.mask_position = given.strides(3);
    }
    room = static_cast<int64_t>(
        table->trained_attention_size(attention.positions, attention.key_dim, attention.value_dim));
    scratch = temporary<float>(encoder, room * workers);
  }

  void copy() const {
    for (const Operand* one : {&q, &k, &v})
      if (one->copy) one->copy->run();
  }

  /* `count` heads of queries from `head` on, which share one of keys and values. */
  TrainedAttention of(int row, int head, int count, int worker) const {
    TrainedAttention made = attention;
    made.q = q.at(row, head);
    made.k = k.at(row, head / heads);
    made.v = v.at(row, head / heads);
    made.heads = count;
    if (mask != nullptr)
      made.mask = mask + (row * mask_row + head * attention.mask_head) * mask_width;
    made.scratch = scratch + worker * room;
    return made;
  }
};

/* More rows of inputs whose shapes have four axes. */
Arrays with_rows(const Arrays& inputs, const std::vector<int>& axes, int rows, mx::Stream stream) {
  Arrays made;
  for (size_t at = 0; at < inputs.size(); at++)
    made.push_back(mx::flatten(rows_first(inputs[at], axes[at], rows, stream), 0, 1, stream));
  return made;
}

/* The same by mlx's operations. */
mx::array by_mlx(const Settings& settings, const Arrays& inputs, mx::Stream stream) {
  std::optional<mx::array> mask;
  if (settings.has_mask) mask = inputs[3];
  return mx::fast::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], settings.scale,
                                                settings.causal ? "causal" : "", mask, std::nullopt,
                                                false, stream);
}

/* Inputs: q, k, v, perhaps a mask (B, H, L, S), and the gradient of the result. Outputs: those of
 * q, k and v. */
class AttentionGradients : public Gradients, public Turned {
 public:
  AttentionGradients(mx::Stream stream, Settings settings)
      : Gradients(stream), settings_(settings) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const mx::array& input : inputs) encoder.set_input_array(input);
    const Job job(settings_, inputs, encoder);
    const Operand by(inputs.back(), encoder);
    const Result q(outputs[0]), k(outputs[1]), v(outputs[2]);
    for (mx::array& output : outputs) encoder.set_output_array(output);
    dispatch(encoder, [=] {
      const Series series;
      job.copy();
      if (by.copy) by.copy->run();
      share(job.rows * job.groups, job.workers, [&](int index, int worker) {
        const int row = index / job.groups, group = index % job.groups, head = group * job.heads;
        job.table->attention_gradient(
            job.of(row, head, job.heads, worker),
            {by.at(row, head), q.at(row, head), k.at(row, group), v.at(row, group)});
      });
    });
  }

  const char* name() const override { return "CowmlxAttentionGradients"; }
  std::vector<int> order() const override { return {0, 2, 1, 3}; }

  std::pair<Arrays, std::vector<int>> vmap(const Arrays& inputs,
                                           const std::vector<int>& axes) override {
    const int rows = rows_of(inputs, axes);
    Arrays made;
    for (const mx::array& one : make(with_rows(inputs, axes, rows, stream()), settings_, stream()))
      made.push_back(mx::unflatten(one, 0, {rows, one.shape(0) / rows}, stream()));
    return {made, {0, 0, 0}};
  }

  static Arrays make(const Arrays& inputs, const Settings& settings, mx::Stream stream) {
    return mx::array::make_arrays({inputs[0].shape(), inputs[1].shape(), inputs[2].shape()},
                                  {mx::float32, mx::float32, mx::float32},
                                  std::make_shared<AttentionGradients>(stream, settings), inputs);
  }

 protected:
  size_t count() const override { return 3; }

  Arrays plainly(const Arrays& inputs) override {
    auto attend = [&](const Arrays& given) -> Arrays {
      Arrays all = given;
      if (settings_.has_mask) all.push_back(inputs[3]);
      return {by_mlx(settings_, all, stream())};
    };
    return mx::vjp(attend, {inputs[0], inputs[1], inputs[2]}, {inputs.back()}).second;
  }

 private:
  Settings settings_;
};

/* Inputs: q, k, v and, perhaps, a mask (B, H, L, S). */
class TrainedAttentionOperation : public WithGradient, public Turned {
 public:
  TrainedAttentionOperation(mx::Stream stream, Settings settings)
      : WithGradient(stream), settings_(settings) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const mx::array& input : inputs) encoder.set_input_array(input);
    const Job job(settings_, inputs, encoder);
    const Result result(out);
    encoder.set_output_array(out);
    dispatch(encoder, [=] {
      const Series series;
      job.copy();
      const int heads = job.groups * job.heads;
      share(job.rows * heads, job.workers, [&](int index, int worker) {
        const int row = index / heads, head = index % heads;
        job.table->trained_attention(job.of(row, head, 1, worker), result.at(row, head));
      });
    });
  }

  const char* name() const override { return "CowmlxTrainedAttention"; }
  std::vector<int> order() const override { return {0, 2, 1, 3}; }

  Arrays vjp(const Arrays& primals, const Arrays& cotangents, const std::vector<int>& arguments,
             const Arrays& outputs) override {
    if (std::ranges::any_of(arguments, [](int argument) { return argument > 2; })) /* the mask */
      return WithGradient::vjp(primals, cotangents, arguments, outputs);
    Arrays inputs = primals;
    inputs.push_back(cotangents[0]);
    const Arrays all = AttentionGradients::make(inputs, settings_, stream());
    Arrays wanted;
    for (const int argument : arguments) wanted.push_back(all[static_cast<size_t>(argument)]);
    return wanted;
  }

  std::pair<Arrays, std::vector<int>> vmap(const Arrays& inputs,
                                           const std::vector<int>& axes) override {
    const int rows = rows_of(inputs, axes);
    const mx::array all = make(with_rows(inputs, axes, rows, stream()), settings_, stream());
    return {{mx::unflatten(all, 0, {rows, all.shape(0) / rows}, stream())}, {0}};
  }

  static mx::array make(const Arrays& inputs, const Settings& settings, mx::Stream stream) {
    const mx::array& q = inputs[0];
    return mx::array({q.shape(0), q.shape(1), q.shape(2), inputs[2].shape(3)}, mx::float32,
                     std::make_shared<TrainedAttentionOperation>(stream, settings), inputs);
  }

 protected:
  mx::array plainly(const Arrays& inputs) override { return by_mlx(settings_, inputs, stream()); }

 private:
  Settings settings_;
};

mx::array trained_attention(const mx::array& q, const mx::array& k, const mx::array& v, float scale,
                            bool causal, const std::optional<mx::array>& mask) {
  const mx::Stream stream = cpu_stream();
  for (const mx::array* one : {&q, &k, &v}) {
    if (one->dtype() != mx::float32 || one->ndim() != 4)
      refuse("q, k and v are float32 and have four axes");
    if (one->size() == 0 || one->shape(0) != q.shape(0))
      refuse("q, k and v have as many rows, and at least one number");
  }
  if (q.shape(3) != k.shape(3))
    refuse("queries have " + std::to_string(q.shape(3)) + " numbers, keys " +
           std::to_string(k.shape(3)));
  if (k.shape(1) != v.shape(1) || k.shape(2) != v.shape(2) || q.shape(1) % k.shape(1) != 0)
    refuse("keys and values have the same heads and positions, and their heads divide those of q");
  if (mask && (causal || (mask->dtype() != mx::bool_ && mask->dtype() != mx::float32)))
    refuse("a mask is bool or float32, and not causal");
  Arrays inputs{q, k, v};
  if (mask) {
    const mx::Shape scores{q.shape(0), q.shape(1), q.shape(2), k.shape(2)};
    inputs.push_back(mx::broadcast_to(*mask, scores, stream));
  }
  return TrainedAttentionOperation::make(inputs, {scale, causal, mask.has_value()}, stream);
}

}  // namespace

void bind_trained_attention(nb::module_& module) {
  module.def("trained_attention", trained_attention, "q"_a, "k"_a, "v"_a, nb::kw_only(), "scale"_a,
             "causal"_a = false, "mask"_a = nb::none(),
             R"(softmax(q k^T * scale + mask) v, whose gradients of q, k and v kernels compute, too.

Hidden positions have the least score: a query that sees nothing has the mean of v.

Args:
    q: (B, H, L, D) float32, at least one number, as k and v.
    k: (B, G, S, D), where G divides H.
    v: (B, G, S, E).
    scale: of the scores.
    causal: the last query sees all, each before it one position less.
    mask: an array that broadcasts to (B, H, L, S): bool, or float32 that is added to the scores.

Returns:
    (B, H, L, E) float32.)");
}

}  // namespace cowmlx
