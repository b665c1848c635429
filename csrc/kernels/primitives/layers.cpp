#include "layers.h"
#include "layers/stages.h"

namespace cowmlx {
namespace {

/* All that the task needs; mlx keeps the arrays that it points into until it is done. */
struct Work {
  std::shared_ptr<const HeldLayers> held;
  LayersCall call;
  std::vector<Angles> angles;
  std::vector<LayerCache> caches;
  std::vector<Copy> copies;
  std::vector<Memory> memory;
  std::vector<Lines> tokens;            /* one, or */
  std::vector<Activations> activations; /* one */
  std::vector<int32_t> ids;
  Scalar out = Scalar::Float32;
  void* result = nullptr;
  char* scratch = nullptr;
  Step step{};

  void run() {
    const Layers& layers = held->layers;
    const int rows = step.rows * step.tokens;
    for (const Copy& copy : copies) copy.run();
    for (const Lines& lines : tokens) {
      lines.copy(0, lines.count(), reinterpret_cast<char*>(ids.data()));
      for (int32_t& id : ids) id = std::clamp(id, 0, layers.embedding.rows - 1);
      step.ids = ids.data();
    }
    for (const Activations& x : activations) x.read(*step.table, 0, rows, step.x);
    cowmlx::run(layers, step, scratch);
    if (out == Scalar::Float32) return;
    for (int64_t row = 0; row < rows; row++)
      step.table->store(step.x + row * layers.width, layers.width,
                        static_cast<uint16_t*>(result) + row * layers.width, out);
  }
};

}  // namespace

void LayersStep::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  Takeover takeover(inputs, outputs);
  auto& encoder = mx::cpu::get_command_encoder(stream());
  auto work = std::make_shared<Work>();
  work->held = held_;
  work->call = call_;
  const Layers& layers = held_->layers;
  const size_t count = layers.layers.size();

  const mx::array& first = inputs[0];
  Step& step = work->step;
  step.table = &table();
  step.rows = first.shape(0);
  step.tokens = first.ndim() == 1 ? 1 : first.shape(1);
  if (first.ndim() < 3) {
    work->tokens.emplace_back(first);
    work->ids.resize(first.size());
  } else {
    work->activations.emplace_back(first);
  }
  size_t next = 1;
  for (int i = 0; i < call_.angles; i++, next += 2)
    work->angles.push_back({inputs[next].data<float>(), inputs[next + 1].data<float>(),
                            static_cast<int32_t>(inputs[next].shape(1))});
  const bool writes = call_.part != Part::FinishLast;
  work->caches.resize(count);
  for (size_t layer = writes ? 0 : count - 1, out = 1; layer < count; layer++) {
    const auto stored = [&] {
      void* data[3] = {};
      for (int part = 0; part < call_.quantization.parts(); part++, next++, out++) {
        if (writes) takeover.buffer(next, out);
        mx::array held = writes ? outputs[out] : inputs[next];
        data[part] = held.data<void>();
      }
      return Stored{data[0], data[1], data[2]};
    };
    LayerCache& cache = work->caches[layer];
    cache.capacity = static_cast<int32_t>(inputs[next].shape(2));
    cache.keys = stored();
    cache.values = stored();
    cache.type = scalar_of(inputs[next - 1], "values");
  }
  work->copies = takeover.copies();

  mx::array& result = outputs[0];
  result.set_data(mx::allocator::malloc(result.nbytes()));
  work->out = scalar_of(result, "the result");
  work->result = result.data<void>();
  if (call_.logits) step.logits = result.data<float>();
  step.x = work->out == Scalar::Float32 && !call_.logits
               ? result.data<float>()
               : temporary<float>(encoder, int64_t{step.rows} * step.tokens * layers.width);
  step.offsets = work->call.offsets.data();
  step.places = work->call.places.data();
  step.angles = work->angles.data();
  step.caches = work->caches.data();
  step.quantization = call_.quantization;
  step.part = call_.part;
  step.workers = threads();
  work->scratch = temporary<char>(encoder, static_cast<int64_t>(scratch_size(layers, step)));
  takeover.finish();
  work->memory = takeover.memory();
  dispatch(encoder, [work] { work->run(); });
}

namespace {

void check_place(const Place& place, int rows) {
  const auto size = static_cast<size_t>(rows);
  if (place.columns.size() != size || place.ends.size() != size || place.positions.size() != size)
    refuse("a place has not a number for every row");
}

void check_format(const KVQuantization& quantization) {
  if (quantization.bits == 0 && quantization.group == 0) return;
  if ((quantization.bits != 4 && quantization.bits != 8) || quantization.group < 32 ||
      quantization.group % 32 != 0 || quantization.group > LARGEST_GROUP)
    refuse("no kernel writes caches of " + std::to_string(quantization.bits) +
           " bits in groups of " + std::to_string(quantization.group));
}

/* Whether arrays are keys or values of `dim` numbers that lie as `like` does. */
bool is_stored(const mx::array* arrays, const KVQuantization& quantization, int groups, int dim,
               const mx::array& like, mx::Dtype type) {
  if (quantization.bits != 0 && (dim % quantization.group != 0 || arrays[0].dtype() != mx::uint32))
    return false;
  for (int part = 0; part < quantization.parts(); part++) {
    const mx::array& each = arrays[part];
    int numbers = dim;
    if (quantization.bits != 0)
      numbers = part == 0 ? dim * quantization.bits / 32 : dim / quantization.group;
    if (each.ndim() != 4 || each.shape(0) != like.shape(0) || each.shape(1) != groups ||
        each.shape(2) != like.shape(2) || each.shape(3) != numbers)
      return false;
    if ((quantization.bits == 0 || part > 0) && each.dtype() != type) return false;
  }
  return true;
}

void check_cache(const AttentionHalf& half, const Place& place, const KVQuantization& quantization,
                 const mx::array* arrays, int rows, int tokens) {
  const mx::array &first = arrays[0], &last = arrays[2 * quantization.parts() - 1];
  if (first.ndim() != 4 || first.shape(0) < rows || scalar_of(last, "keys") == Scalar::UInt8 ||
      !is_stored(arrays, quantization, half.groups, half.key_dim, first, last.dtype()) ||
      !is_stored(arrays + quantization.parts(), quantization, half.groups, half.value_dim, first,
                 last.dtype()))
    refuse("keys and values are not those of the layer");
  for (int row = 0; row < rows; row++)
    if (place.columns[row] < 0 || place.columns[row] + tokens > first.shape(2) ||
        place.ends[row] > first.shape(2) || place.positions[row] < 0)
      refuse("a place lies outside of its cache");
}

Part part_of(const std::string& name) {
  if (name == "all") return Part::All;
  if (name == "store_last") return Part::StoreLast;
  if (name == "finish_last") return Part::FinishLast;
  refuse("part is \"" + name + "\"; it can be all, store_last or finish_last");
}

/* Check the tables of a step up to position `longest`, and put them behind its inputs. */
void add_angles(Arrays& inputs, const Arrays& angles, int longest) {
  if (angles.size() % 2 != 0) refuse("cosines and sines do not pair");
  for (size_t i = 0; i < angles.size(); i++) {
    const mx::array& table = angles[i];
    if (table.ndim() != 2 || table.dtype() != mx::float32 || table.shape(0) < longest ||
        !table.is_available() || !table.flags().row_contiguous ||
        table.shape(1) != angles[i / 2 * 2].shape(1))
      refuse("a table of cosines and sines is too short, or not evaluated");
    inputs.push_back(table);
  }
}

/* The same for the caches of the layers that the step writes or reads. */
void add_caches(Arrays& inputs, const Layers& layers, const LayersCall& call, const Arrays& angles,
                const Arrays& caches, int tokens, mx::Stream stream) {
  const bool writes = call.part != Part::FinishLast;
  const size_t first = writes ? 0 : layers.layers.size() - 1;
  check_format(call.quantization);
  const size_t each = 2 * static_cast<size_t>(call.quantization.parts());
  if (caches.size() != each * (layers.layers.size() - first))
    refuse("there are not keys and values for every layer");
  for (const Layer& layer : layers.layers) /* scratch is measured for all of them */
    if (layer.attention.place < 0 || layer.attention.place >= static_cast<int>(call.places.size()))
      refuse("a layer has no place");
  for (size_t i = first; i < layers.layers.size(); i++) {
    const AttentionHalf& half = layers.layers[i].attention;
    if (half.turn.table >= call.angles ||
        (half.turn.table >= 0 && angles[2 * half.turn.table].shape(1) * 2 != half.turn.dims))
      refuse("a layer has no table to turn by");
    const mx::array* own = caches.data() + each * (i - first);
    check_cache(half, call.places[half.place], call.quantization, own,
                static_cast<int>(call.offsets.size()), tokens);
    for (size_t part = 0; part < each; part++)
      inputs.push_back(writes ? own[part] : plain(own[part], stream));
  }
}

/* (columns, ends, positions, windowed), a number for every row of the batch each. */
using PlaceParts = std::tuple<std::vector<int>, std::vector<int>, std::vector<int>, bool>;

Arrays step(const std::shared_ptr<HeldLayers>& held, const mx::array& x,
            const std::vector<int>& offsets, const std::vector<PlaceParts>& places,
            const Arrays& angles, const Arrays& caches, const std::string& part_name,
            mx::Dtype type, int bits, int group) {
  LayersCall call{part_of(part_name), {offsets.begin(), offsets.end()}, {}, 0, false,
                  {bits, group}};
  for (const auto& [columns, ends, positions, windowed] : places)
    call.places.push_back({columns, ends, positions, windowed});
  return make_step(held, x, std::move(call), angles, caches, type, cpu_stream());
}

}  // namespace

Arrays make_step(const std::shared_ptr<const HeldLayers>& held, const mx::array& x, LayersCall call,
                 const Arrays& angles, const Arrays& caches, mx::Dtype type, mx::Stream stream) {
  const Layers& layers = held->layers;
  const bool tokens = x.ndim() == 1 || x.ndim() == 2;
  const bool is_int32 = x.itemsize() == 4 && mx::issubdtype(x.dtype(), mx::integer);
  if (tokens ? layers.embedding.rows == 0 || !is_int32
             : x.ndim() != 3 || x.shape(2) != layers.width || scalar_of(x, "x") == Scalar::UInt8)
    refuse(
        "x is neither tokens (B,) or (B, T), integers of 32 bits, for an embedding, nor "
        "activations (B, T, H)");
  const int rows = x.shape(0), count = x.ndim() == 1 ? 1 : x.shape(1);
  if (call.offsets.size() != static_cast<size_t>(rows) || count < 1)
    refuse("there are not as many offsets as rows");
  if (call.logits && (layers.head.rows == 0 || count != 1 || call.part != Part::All))
    refuse("logits take a head, and one token a row");
  for (const Place& place : call.places) check_place(place, rows);
  int longest = 0;
  for (int offset : call.offsets) {
    if (offset < 0) refuse("an offset is below 0");
    longest = std::max(longest, offset + count);
  }
  Arrays inputs{x};
  inputs.reserve(1 + angles.size() + caches.size());
  add_angles(inputs, angles, longest);
  call.angles = static_cast<int>(angles.size() / 2);
  add_caches(inputs, layers, call, angles, caches, count, stream);
  std::vector<mx::Shape> shapes;
  if (call.logits)
    shapes.push_back({rows, layers.head.rows});
  else
    shapes.push_back({rows, count, layers.width});
  std::vector<mx::Dtype> types{type};
  if (call.part != Part::FinishLast)
    for (const mx::array& cache : caches) {
      shapes.push_back(cache.shape());
      types.push_back(cache.dtype());
    }
  auto primitive = std::make_shared<LayersStep>(stream, held, std::move(call));
  return mx::array::make_arrays(std::move(shapes), types, primitive, inputs);
}

void bind_layers_steps(nb::module_& module) {
  module.def("step_layers", step, "layers"_a, "x"_a, "offsets"_a, "places"_a, "angles"_a,
             "caches"_a, "part"_a = "all", nb::kw_only(), "type"_a = mx::float32, "bits"_a = 0,
             "group"_a = 0,
             R"(Take tokens through layers: activations, then keys and values of every layer.

Args:
    layers: of make_layers().
    x: tokens (B, T) or activations (B, T, H).
    offsets: the position of every row's first token.
    places: (columns, ends, positions, windowed) for every kind of cache: a number for every row.
    angles: evaluated cosines and sines (positions, half) of every kind of rotation.
    caches: keys and values (rows, groups, capacity, dim) of every layer, one after the other;
        quantized, each as words, scales and biases.
    part: all, store_last (the last layer writes keys and values, and the activations are those
        before it), or finish_last (the rest; caches are the last layer's).
    type: of the activations that come out.
    bits, group: of mlx's affine quantization, where caches have it: 4 or 8, and 32, 64, 96 or 128.)");
}

}  // namespace cowmlx
