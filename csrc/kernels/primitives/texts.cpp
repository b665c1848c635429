/* Both ends of an encoder as one operation each: the sums of embeddings in front of its layers, and
 * a vector of each text behind them. */
#include <cmath>
#include <memory>
#include <tuple>

#include "layers.h"
#include "layers/stages.h"

namespace cowmlx {
namespace {

/* (start, texts, length) of neighbours of one length. */
using GroupParts = std::tuple<int, int, int>;

/* The rows that groups have, which must follow each other. */
int rows_of(const std::vector<GroupParts>& groups) {
  int rows = 0;
  for (const auto& [start, texts, length] : groups) {
    if (start != rows || texts < 1 || length < 1) refuse("groups do not follow each other");
    rows += texts * length;
  }
  return rows;
}

/* Tables of embeddings of one width, and the norm of their sums. Knows its owners, as HeldLayers
 * does. */
class Embeddings : public std::enable_shared_from_this<Embeddings> {
 public:
  Embeddings(const HeldMatrix& word, const std::optional<HeldMatrix>& position, int first,
             const std::optional<HeldMatrix>& kind, const std::optional<mx::array>& weight,
             const std::optional<mx::array>& bias, float eps)
      : word_(word), position_(position), kind_(kind), first_(first) {
    if ((position && position->matrix().columns != width()) ||
        (kind && kind->matrix().columns != width()))
      refuse("tables of embeddings have different widths");
    norm_ = {Norm::Kind::Layer, numbers(weight), numbers(bias), eps};
  }

  int width() const { return word_.matrix().columns; }

  void check(const std::vector<int32_t>& tokens, const std::vector<int32_t>& kinds,
             int longest) const {
    for (const int32_t token : tokens)
      if (token < 0 || token >= word_.matrix().rows) refuse("a token is not in the table");
    if (!kinds.empty() && kinds.size() != tokens.size()) refuse("tokens have no type each");
    for (const int32_t kind : kinds)
      if (kind < 0 || (kind_ && kind >= kind_->matrix().rows)) refuse("a type is not in the table");
    if (position_ && (first_ < 0 || longest > position_->matrix().rows - first_))
      refuse("a text is longer than the table of positions");
  }

  /* The sum of a token at a place in its text, with a norm. */
  void write(const Table& table, int token, int place, int kind, float* spare, float* out) const {
    table.row_numbers(word_.matrix(), token, out);
    if (position_) add(table, position_->matrix(), first_ + place, spare, out);
    if (kind_) add(table, kind_->matrix(), kind, spare, out);
    apply(table, norm_, out, width(), out);
  }

 private:
  void add(const Table& table, const Matrix& matrix, int row, float* spare, float* out) const {
    table.row_numbers(matrix, row, spare);
    table.add(out, spare, 1, width(), out);
  }

  const float* numbers(const std::optional<mx::array>& value) {
    if (!value) return nullptr;
    mx::array array = mx::contiguous(mx::astype(*value, mx::float32));
    mx::eval(array);
    if (array.ndim() != 1 || array.shape(0) != width()) refuse("a norm is not as wide as its sums");
    held_.push_back(array);
    return array.data<float>();
  }

  HeldMatrix word_;
  std::optional<HeldMatrix> position_, kind_;
  int first_;
  Norm norm_;
  Arrays held_;
};

std::shared_ptr<Embeddings> make_embeddings(const HeldMatrix& word,
                                            const std::optional<HeldMatrix>& position, int first,
                                            const std::optional<HeldMatrix>& kind,
                                            const std::optional<mx::array>& weight,
                                            const std::optional<mx::array>& bias, float eps) {
  return std::make_shared<Embeddings>(word, position, first, kind, weight, bias, eps);
}

/* Output: (N, D) of float32. */
class EmbedStep : public Operation {
 public:
  EmbedStep(mx::Stream stream, std::shared_ptr<const Embeddings> held, std::vector<int32_t> tokens,
            std::vector<int32_t> kinds, std::vector<GroupParts> groups)
      : Operation(stream),
        held_(std::move(held)),
        tokens_(std::move(tokens)),
        kinds_(std::move(kinds)) {
    for (const auto& [start, texts, length] : groups)
      for (int text = 0; text < texts; text++)
        for (int token = 0; token < length; token++) places_.push_back(token);
  }

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    const int width = held_->width(), workers = threads();
    auto* spare = temporary<float>(encoder, int64_t{workers} * width);
    float* rows = out.data<float>();
    /* Its own copies: the operation may be gone when the task begins. */
    dispatch(encoder, [held = held_, tokens = tokens_, kinds = kinds_, places = places_, spare,
                       rows, width, workers] {
      const Table& used = table();
      const int count = static_cast<int>(tokens.size()),
                tasks = (count + SMALL_ROWS - 1) / SMALL_ROWS;
      share(tasks, workers, [&](int task, int worker) {
        const int end = std::min(count, (task + 1) * SMALL_ROWS);
        for (int row = task * SMALL_ROWS; row < end; row++)
          held->write(used, tokens[row], places[row], kinds.empty() ? 0 : kinds[row],
                      spare + int64_t{worker} * width, rows + int64_t{row} * width);
      });
    });
  }

  const char* name() const override { return "CowmlxEmbed"; }

 private:
  std::shared_ptr<const Embeddings> held_;
  std::vector<int32_t> tokens_, kinds_, places_;
};

/* Numbers of an evaluated array (N,) of int32; none where it is not evaluated, or of another type.
 */
std::optional<std::vector<int32_t>> integers(const mx::array& array) {
  if (!array.is_available() || array.dtype() != mx::int32 || array.ndim() != 1 ||
      !array.flags().row_contiguous)
    return std::nullopt;
  const int32_t* first = array.data<int32_t>();
  return std::vector<int32_t>(first, first + array.size());
}

std::optional<mx::array> embed_texts(const std::shared_ptr<Embeddings>& held,
                                     const mx::array& tokens, const std::optional<mx::array>& kinds,
                                     const std::vector<GroupParts>& groups) {
  std::optional<std::vector<int32_t>> own = integers(tokens), types = std::vector<int32_t>{};
  if (kinds) types = integers(*kinds);
  if (!own || !types) return std::nullopt;
  int longest = 0;
  for (const GroupParts& group : groups) longest = std::max(longest, std::get<2>(group));
  const int rows = static_cast<int>(own->size());
  if (rows_of(groups) != rows || rows == 0) refuse("groups have another number of tokens");
  held->check(*own, *types, longest);
  auto step =
      std::make_shared<EmbedStep>(cpu_stream(), held, std::move(*own), std::move(*types), groups);
  return mx::array({rows, held->width()}, mx::float32, std::move(step), Arrays{});
}

/* ---- pooling ---- */

enum class Pooling { Cls, Last, Max, Mean, Weighted };

Pooling pooling_of(const std::string& name) {
  if (name == "cls") return Pooling::Cls;
  if (name == "last") return Pooling::Last;
  if (name == "max") return Pooling::Max;
  if (name == "mean") return Pooling::Mean;
  if (name == "weighted") return Pooling::Weighted;
  refuse("pooling is \"" + name + "\"; it can be cls, last, max, mean or weighted");
}

/* One vector of `count` rows of `n` numbers, the tokens of a text behind so many others. */
void pool(const Table& table, Pooling kind, const float* x, int before, int count, int n,
          float* out) {
  const float* first = kind == Pooling::Last ? x + int64_t{count - 1} * n : x;
  std::copy_n(first, n, out);
  if (kind == Pooling::Cls || kind == Pooling::Last) return;
  const bool weighted = kind == Pooling::Weighted;
  if (weighted)
    for (int i = 0; i < n; i++) out[i] *= static_cast<float>(before + 1);
  for (int row = 1; row < count; row++) {
    const float* own = x + int64_t{row} * n;
    if (kind == Pooling::Max)
      for (int i = 0; i < n; i++) out[i] = out[i] >= own[i] || std::isnan(out[i]) ? out[i] : own[i];
    else
      table.add(out, own, weighted ? static_cast<float>(before + row + 1) : 1.0F, n, out);
  }
  if (kind == Pooling::Max) return;
  const double weights = weighted ? count * (before + 0.5 * (count + 1.0)) : count;
  for (int i = 0; i < n; i++) out[i] /= static_cast<float>(weights);
}

/* To length 1; zeros stay zeros. Squares of any float32 fit float64. */
void normalize(int n, float* x) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += double{x[i]} * x[i];
  if (sum == 0) return;
  const double length = std::sqrt(sum);
  for (int i = 0; i < n; i++) x[i] = static_cast<float>(x[i] / length);
}

/* Input: hidden states (N, D) of float32. Output: (B, D). */
class PoolStep : public Operation {
 public:
  PoolStep(mx::Stream stream, Pooling kind, int skipped, bool normalized,
           const std::vector<GroupParts>& groups)
      : Operation(stream), kind_(kind), skipped_(skipped), normalized_(normalized) {
    for (const auto& [start, texts, length] : groups)
      for (int text = 0; text < texts; text++) parts_.push_back({start + text * length, length});
  }

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    dispatch(encoder,
             [kind = kind_, skipped = skipped_, normalized = normalized_, parts = parts_,
              x = inputs[0].data<float>(), n = inputs[0].shape(1), rows = out.data<float>()] {
               const Table& used = table();
               const int count = static_cast<int>(parts.size());
               share(count, count, [&](int text, int) {
                 auto [start, length] = parts[text];
                 int before = 0;
                 if (skipped < length && kind != Pooling::Cls) {
                   before = skipped;
                   start += before;
                   length -= before;
                 }
                 float* own = rows + int64_t{text} * n;
                 pool(used, kind, x + int64_t{start} * n, before, length, n, own);
                 if (normalized) normalize(n, own);
               });
             });
  }

  const char* name() const override { return "CowmlxPool"; }

 private:
  Pooling kind_;
  int skipped_;
  bool normalized_;
  std::vector<std::pair<int, int>> parts_; /* the first row of each text, and its rows */
};

mx::array pool_texts(const mx::array& hidden, const std::vector<GroupParts>& groups,
                     const std::string& kind, int skipped, bool normalized) {
  const mx::Stream stream = cpu_stream();
  if (hidden.ndim() != 2 || hidden.dtype() != mx::float32)
    refuse("hidden states are no array (N, D) of float32");
  if (rows_of(groups) != hidden.shape(0) || groups.empty())
    refuse("groups have another number of tokens than the hidden states");
  if (skipped < 0) refuse("tokens that are skipped are below 0");
  int texts = 0;
  for (const GroupParts& group : groups) texts += std::get<1>(group);
  auto step = std::make_shared<PoolStep>(stream, pooling_of(kind), skipped, normalized, groups);
  return mx::array({texts, hidden.shape(1)}, mx::float32, std::move(step),
                   Arrays{plain(hidden, stream)});
}

}  // namespace

void bind_texts(nb::module_& module) {
  nb::class_<Embeddings>(module, "Embeddings",
                         "Tables of tokens, positions and token types, and a norm of their sums.");
  module.def("make_embeddings", make_embeddings, "word"_a, "position"_a.none(), "first"_a,
             "kind"_a.none(), "weight"_a.none(), "bias"_a.none(), "eps"_a,
             R"(Put tables together.

Args:
    word: of tokens, a Matrix, as the others are.
    position: of places in a text, or None.
    first: the position of a text's first token.
    kind: of token types, or None.
    weight: (D,) of the layer norm, or None for ones.
    bias: (D,) of it, or None for zeros.
    eps: of it.)");
  module.def("embed_texts", embed_texts, "embeddings"_a, "tokens"_a, "kinds"_a.none(), "groups"_a,
             R"(Sum the embeddings of tokens, and norm the sums: (N, D) of float32.

Args:
    embeddings: the tables.
    tokens: (N,) of int32, evaluated, of one text behind those of another.
    kinds: their types, likewise; None: all are 0.
    groups: (start, texts, length) of neighbours of one length.

Returns:
    None where an array is not evaluated, or of another type.)");
  module.def("pool_texts", pool_texts, "hidden"_a, "groups"_a, "kind"_a, "skipped"_a,
             "normalized"_a,
             R"(Make a vector of each text's hidden states: (B, D) of float32.

Args:
    hidden: (N, D) of float32, the tokens of one text behind those of another.
    groups: (start, texts, length) of neighbours of one length.
    kind: "cls", "last", "max", "mean", or "weighted" by the place of a token.
    skipped: tokens in front of each text that do not count, unless it has no more.
    normalized: whether vectors get length 1.)");
}

}  // namespace cowmlx
