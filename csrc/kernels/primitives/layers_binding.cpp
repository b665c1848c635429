/* Layers as Python describes them: dictionaries of matrices, arrays and numbers. */
#include "layers.h"

namespace cowmlx {
namespace {

/* Reads a description into layers, which keep what it names. */
class Reader {
 public:
  explicit Reader(HeldLayers& held) : held_(held) {}

  Matrix matrix(const nb::dict& from, const char* name) {
    const nb::object value = from.get(name, nb::none());
    if (value.is_none()) return Matrix{};
    held_.matrices.push_back(nb::cast<HeldMatrix>(value));
    return held_.matrices.back().matrix();
  }

  const float* numbers(const nb::object& value, int size) {
    if (value.is_none()) return nullptr;
    auto array = nb::cast<mx::array>(value);
    if (array.dtype() != mx::float32 || !array.is_available() || !array.flags().row_contiguous) {
      array = mx::contiguous(mx::astype(array, mx::float32));
      mx::eval(array);
    }
    if (array.ndim() != 1 || array.shape(0) != size)
      refuse("a layer's array has " + std::to_string(array.size()) + " numbers, not " +
             std::to_string(size));
    held_.arrays.push_back(array);
    return array.data<float>();
  }

  /* None, or (kind, weight, bias, eps). */
  Norm norm(const nb::object& value, int size) {
    Norm norm;
    if (value.is_none()) return norm;
    const nb::tuple parts = nb::cast<nb::tuple>(value);
    const auto kind = nb::cast<std::string>(parts[0]);
    if (kind != "rms" && kind != "layer") refuse("a norm is \"rms\" or \"layer\"");
    norm.kind = kind == "rms" ? Norm::Kind::Rms : Norm::Kind::Layer;
    norm.weight = numbers(parts[1], size);
    norm.bias = numbers(parts[2], size);
    norm.eps = nb::cast<float>(parts[3]);
    return norm;
  }

  Norm norm(const nb::dict& from, const char* name, int size) {
    return norm(from.get(name, nb::none()), size);
  }

  AttentionHalf attention(const nb::dict& from) {
    AttentionHalf half;
    const int width = held_.layers.width;
    half.heads = nb::cast<int>(from["heads"]);
    half.groups = nb::cast<int>(from["groups"]);
    half.query = matrix(from, "query");
    half.key = matrix(from, "key");
    half.value = matrix(from, "value");
    half.out = matrix(from, "out");
    if (half.heads < 1 || half.groups < 1 || half.heads % half.groups != 0)
      refuse("heads are no whole number of groups");
    half.key_dim = half.key.rows / half.groups;
    half.value_dim = half.value.rows / half.groups;
    if (half.query.columns != width || half.key.columns != width || half.value.columns != width ||
        half.key.rows != half.groups * half.key_dim ||
        half.query.rows != half.heads * half.key_dim ||
        half.value.rows != half.groups * half.value_dim ||
        half.out.columns != half.heads * half.value_dim || half.out.rows != width)
      refuse("the projections of an attention do not fit each other");
    half.before = norm(from, "before", width);
    half.after = norm(from, "after", width);
    half.norm_per_head = nb::cast<bool>(from["norm_per_head"]);
    const int heads = half.norm_per_head ? 1 : half.heads;
    const int groups = half.norm_per_head ? 1 : half.groups;
    half.query_norm = norm(from, "query_norm", heads * half.key_dim);
    half.key_norm = norm(from, "key_norm", groups * half.key_dim);
    half.turn.table = nb::cast<int>(from["table"]);
    half.turn.dims = nb::cast<int>(from["turning"]);
    half.turn.traditional = nb::cast<bool>(from["traditional"]);
    if (half.turn.dims < 0 || half.turn.dims > half.key_dim || half.turn.dims % 2 != 0)
      refuse("a head turns in an even number of its dimensions");
    half.scale = nb::cast<float>(from["scale"]);
    half.soft_cap = nb::cast<float>(from["soft_cap"]);
    half.residual = nb::cast<float>(from["residual"]);
    half.sinks = numbers(from.get("sinks", nb::none()), half.heads);
    half.window = nb::cast<int>(from["window"]);
    half.place = nb::cast<int>(from["place"]);
    return half;
  }

  MLPHalf mlp(const nb::dict& from) {
    MLPHalf half;
    const int width = held_.layers.width;
    half.before = norm(from, "before", width);
    half.after = norm(from, "after", width);
    half.gate = matrix(from, "gate");
    half.up = matrix(from, "up");
    half.down = matrix(from, "down");
    const bool gated = half.up.rows > 0;
    if (half.gate.columns != width || half.down.rows != width ||
        half.down.columns != half.gate.rows ||
        (gated && (half.up.columns != width || half.up.rows != half.gate.rows)))
      refuse("the layers of an MLP do not fit each other");
    half.activation = activation_of(nb::cast<std::string>(from["activation"]));
    half.residual = nb::cast<float>(from["residual"]);
    return half;
  }

 private:
  HeldLayers& held_;
};

std::shared_ptr<HeldLayers> make(int width, const nb::list& layers, bool rounded,
                                 const nb::dict& ends) {
  auto held = std::make_shared<HeldLayers>();
  Reader reader(*held);
  held->layers.width = width;
  held->layers.rounded = rounded;
  held->layers.embedding = reader.matrix(ends, "embedding");
  if (held->layers.embedding.rows && held->layers.embedding.columns != width)
    refuse("the embedding is of another width than the layers");
  held->layers.input_scale = nb::cast<float>(ends.get("scale", nb::float_(1.0)));
  held->layers.last = reader.norm(ends, "norm", width);
  held->layers.head = reader.matrix(ends, "head");
  if (held->layers.head.rows && held->layers.head.columns != width)
    refuse("the head is of another width than the layers");
  for (nb::handle item : layers) {
    const nb::dict from = nb::cast<nb::dict>(item);
    Layer layer;
    layer.attention = reader.attention(nb::cast<nb::dict>(from["attention"]));
    const nb::object mlp = from.get("mlp", nb::none());
    layer.has_mlp = !mlp.is_none();
    if (layer.has_mlp) layer.mlp = reader.mlp(nb::cast<nb::dict>(mlp));
    held->layers.layers.push_back(layer);
  }
  if (held->layers.layers.empty()) refuse("there are no layers");
  return held;
}

}  // namespace

void bind_layers(nb::module_& module) {
  nb::class_<HeldMatrix>(module, "Matrix", "A matrix in blocks, as layers hold it.")
      .def(nb::init<const mx::array&, const std::optional<mx::array>&,
                    const std::optional<mx::array>&, const std::optional<mx::array>&, int,
                    const std::string&, int, int>(),
           "weight"_a, "scales"_a = nb::none(), "biases"_a = nb::none(), "bias"_a = nb::none(),
           nb::kw_only(), "rows"_a, "mode"_a = "dense", "bits"_a = 0, "group"_a = 0)
      .def("part", &HeldMatrix::part, "first"_a, "rows"_a,
           "Rows from `first` on, which begins a block, as another matrix.")
      .def("with_low", &HeldMatrix::with_low, "down"_a, "up"_a, "rescale"_a = nb::none(),
           "This matrix and an adapter's: `up` times `down` added, dense float32, to rows that are "
           "multiplied with `rescale`.")
      .def_prop_ro("rows", [](const HeldMatrix& held) { return held.matrix().rows; })
      .def_prop_ro("columns", [](const HeldMatrix& held) { return held.matrix().columns; });
  nb::class_<HeldLayers>(module, "Layers", "Decoder layers that are computed as one operation.")
      .def_prop_ro("count", [](const HeldLayers& held) { return held.layers.layers.size(); });
  module.def("make_layers", make, "width"_a, "layers"_a, "rounded"_a, "ends"_a,
             R"(Put layers together.

Args:
    width: of activations.
    layers: for each {"attention": {...}, "mlp": {...} or None}; see the source.
    rounded: round activations as product() does.
    ends: "embedding", "scale", "norm" and "head" of what comes before and behind, where it belongs
        to it.)");
}

}  // namespace cowmlx
