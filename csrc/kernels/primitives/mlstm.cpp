/* The mLSTM recurrence (arXiv 2405.04517, eq. 19-27) over all rows and heads at once. */
#include <cmath>
#include <cstring>

#include "operation.h"

namespace cowmlx {
namespace {

constexpr int COLUMNS = 64; /* of a memory that are one task */
constexpr float NOTHING =
    -1e30f; /* stands for minus infinity where infinities would be subtracted */

/* log(1 / (1 + e^-x)) without overflow. */
float log_sigmoid(float x) { return std::min(x, 0.0F) - std::log1p(std::exp(-std::fabs(x))); }

struct Job {
  const Table* table;
  /* (B, H, S, D) each, contiguous; gates (B, H, S) */
  const float *q, *k, *v, *i, *f;
  const float *memory, *normalizer, *logarithm; /* before; memory null: it lies in its place */
  float *hidden, *memory_out, *normalizer_out, *logarithm_out;
  int64_t heads; /* of all rows */
  int positions, key_dim, value_dim;
  float eps;
  float* factors; /* for each head: forget, take and scale of each position */

  /* Gates, the normalizer and what hidden states are divided by. */
  void weigh(int64_t head) const {
    float* forget = factors + head * 3 * positions;
    float *take = forget + positions, *scale = take + positions;
    float* n = normalizer_out + head * key_dim;
    if (n != normalizer + head * key_dim)
      memcpy(n, normalizer + head * key_dim, static_cast<size_t>(key_dim) * sizeof(float));
    float m = logarithm[head];
    const float root = 1 / std::sqrt(static_cast<float>(key_dim));
    for (int64_t t = 0; t < positions; t++) {
      const int64_t at = head * positions + t;
      const float kept = log_sigmoid(f[at]) + m, gate = i[at];
      m = std::max(std::max(kept, gate), NOTHING);
      forget[t] = std::exp(kept - m);
      take[t] = std::exp(gate - m);
      const float *key = k + at * key_dim, *query = q + at * key_dim;
      float weight = 0;
      for (int d = 0; d < key_dim; d++) {
        n[d] = forget[t] * n[d] + take[t] * key[d];
        weight += query[d] * n[d];
      }
      scale[t] = root / (std::max(std::fabs(root * weight), std::exp(-m)) + eps);
    }
    logarithm_out[head] = m;
  }

  void recur(int64_t head, int column) const {
    const int columns = std::min(COLUMNS, value_dim - column);
    float* own = memory_out + head * key_dim * value_dim + column;
    if (memory != nullptr) {
      const float* from = memory + head * key_dim * value_dim + column;
      for (int64_t d = 0; d < key_dim; d++)
        memcpy(own + d * value_dim, from + d * value_dim,
               static_cast<size_t>(columns) * sizeof(float));
    }
    Recurrence r{};
    r.queries = q + head * positions * key_dim;
    r.keys = k + head * positions * key_dim;
    r.values = v + head * positions * value_dim + column;
    r.query_stride = r.key_stride = key_dim;
    r.value_stride = r.out_stride = r.memory_stride = value_dim;
    r.forget = factors + head * 3 * positions;
    r.take = r.forget + positions;
    r.scale = r.take + positions;
    r.positions = positions;
    r.key_dim = key_dim;
    r.columns = columns;
    r.memory = own;
    r.out = hidden + head * positions * value_dim + column;
    table->recurrence(r);
  }

  void operator()() const {
    parallel(static_cast<int>(heads), [&](int head) { weigh(head); });
    const int parts = (value_dim + COLUMNS - 1) / COLUMNS;
    parallel(static_cast<int>(heads) * parts,
             [&](int task) { recur(task / parts, task % parts * COLUMNS); });
  }
};

class Mlstm : public Operations {
 public:
  Mlstm(mx::Stream stream, float eps) : Operations(stream), eps_(eps) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const mx::array& input : inputs) encoder.set_input_array(input);
    bool in_place = false;
    for (size_t output = 0; output < outputs.size(); output++) {
      mx::array& out = outputs[output];
      encoder.set_output_array(out);
      const mx::array& before = inputs[output + 4];
      if (output == 1 && before.is_donatable() && before.data_size() == before.size()) {
        out.copy_shared_buffer(before);
        in_place = true;
      } else {
        out.set_data(mx::allocator::malloc(out.nbytes()));
      }
    }
    const mx::array &q = inputs[0], &v = inputs[2];
    const int64_t heads = int64_t{q.shape(0)} * q.shape(1);
    if (heads == 0) return;
    auto* factors = temporary<float>(encoder, heads * 3 * q.shape(2));
    dispatch(encoder,
             Job{&table(), q.data<float>(), inputs[1].data<float>(), v.data<float>(),
                 inputs[3].data<float>(), inputs[4].data<float>(),
                 in_place ? nullptr : inputs[5].data<float>(), inputs[6].data<float>(),
                 inputs[7].data<float>(), outputs[0].data<float>(), outputs[1].data<float>(),
                 outputs[2].data<float>(), outputs[3].data<float>(), heads, q.shape(2), q.shape(3),
                 v.shape(3), eps_, factors});
  }

  const char* name() const override { return "CowmlxMlstm"; }

 private:
  float eps_;
};

void check(const mx::array& array, const std::string& name, const mx::Shape& shape) {
  if (array.shape() == shape && array.dtype() == mx::float32) return;
  std::string wanted;
  for (int size : shape) wanted += (wanted.empty() ? "" : ", ") + std::to_string(size);
  refuse(name + " must be float32 (" + wanted + ")");
}

Arrays mlstm(const mx::array& q, const mx::array& k, const mx::array& v, const mx::array& i,
             const mx::array& f, const mx::array& memory, const mx::array& normalizer,
             const mx::array& logarithm, float eps) {
  const mx::Stream stream = cpu_stream();
  if (q.ndim() != 4 || v.ndim() != 4 || q.shape(3) < 1) refuse("q and v are (B, H, S, numbers)");
  const int rows = q.shape(0), heads = q.shape(1), positions = q.shape(2);
  const int key_dim = q.shape(3), value_dim = v.shape(3);
  check(q, "q", {rows, heads, positions, key_dim});
  check(k, "k", q.shape());
  check(v, "v", {rows, heads, positions, value_dim});
  check(i, "i", {rows, heads, positions});
  check(f, "f", {rows, heads, positions});
  check(memory, "the memory", {rows, heads, key_dim, value_dim});
  check(normalizer, "the normalizer", {rows, heads, key_dim});
  check(logarithm, "the logarithm", {rows, heads, 1});
  Arrays inputs;
  for (const mx::array* array : {&q, &k, &v, &i, &f, &memory, &normalizer, &logarithm})
    inputs.push_back(mx::contiguous(*array, false, stream));
  return mx::array::make_arrays({v.shape(), memory.shape(), normalizer.shape(), logarithm.shape()},
                                {mx::float32, mx::float32, mx::float32, mx::float32},
                                std::make_shared<Mlstm>(stream, eps), std::move(inputs));
}

}  // namespace

void bind_mlstm(nb::module_& module) {
  module.def("mlstm", mlstm, "q"_a, "k"_a, "v"_a, "i"_a, "f"_a, "memory"_a, "normalizer"_a,
             "logarithm"_a, nb::kw_only(), "eps"_a,
             R"(The mLSTM recurrence over S positions (arXiv 2405.04517, eq. 19-27).

Args:
    q: (B, H, S, D) float32, as all are; not scaled: it is multiplied by 1/sqrt(D).
    k: (B, H, S, D).
    v: (B, H, S, E).
    i: (B, H, S), pre-activations of the input gates.
    f: (B, H, S), of the forget gates.
    memory: (B, H, D, E), before the first position.
    normalizer: (B, H, D).
    logarithm: (B, H, 1), by which both are scaled down.
    eps: added to the denominator.

Returns:
    The hidden states (B, H, S, E), and memory, normalizer and logarithm behind the last position.)");
}

}  // namespace cowmlx
