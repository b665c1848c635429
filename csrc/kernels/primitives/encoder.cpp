/* Encoder layers over the texts of a batch as one operation of mlx. */
#include <cstring>
#include <map>
#include <memory>

#include "layers.h"
#include "layers/stages.h"

namespace cowmlx {
namespace {

/* (start, texts, length) of neighbours of one length. */
using GroupParts = std::tuple<int, int, int>;

/* Scratch of bytes, aligned. */
struct Scratch {
  mx::array memory;
  size_t bytes;

  explicit Scratch(size_t size)
      : memory(mx::allocator::malloc(size + Arena::ALIGNMENT), {0}, mx::uint8), bytes(size) {}

  void* begin() {
    auto first = reinterpret_cast<uintptr_t>(memory.data<char>());
    first = (first + Arena::ALIGNMENT - 1) / Arena::ALIGNMENT * Arena::ALIGNMENT;
    return reinterpret_cast<void*>(first);
  }
};

/* All that the task needs; mlx keeps the arrays that it points into until it is done. */
struct Work {
  std::shared_ptr<const HeldLayers> held;
  std::vector<TextGroup> groups;
  std::vector<int32_t> positions;
  Angles angles{};
  const float* x = nullptr;
  std::shared_ptr<Scratch> scratch;
  Encoding encoding{};

  void run() {
    const Layers& layers = held->layers;
    if (encoding.x != x) memcpy(encoding.x, x, sizeof(float) * encoding.rows * layers.width);
    encode(layers, encoding, scratch->begin());
  }
};

/* Scratch for an operation that is being dispatched to a stream. The tasks of a stream run one
 * after the other, so all that wait share it: one for each layer would take as much as weights. */
std::shared_ptr<Scratch> shared_scratch(mx::Stream stream, size_t bytes) {
  static thread_local std::map<int, std::weak_ptr<Scratch>> streams;
  std::erase_if(streams, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Scratch>& last = streams[stream.index];
  if (auto waiting = last.lock(); waiting && waiting->bytes >= bytes) return waiting;
  auto made = std::make_shared<Scratch>(bytes);
  last = made;
  return made;
}

/* Inputs: activations (N, H) of float32; cosines and sines, if heads turn; masks of the groups, if
 * there are any. Output: activations (N, H). */
class EncoderStep : public Operation {
 public:
  EncoderStep(mx::Stream stream, std::shared_ptr<const HeldLayers> held,
              std::vector<GroupParts> groups, bool turns, int first, int end)
      : Operation(stream),
        held_(std::move(held)),
        groups_(std::move(groups)),
        turns_(turns),
        first_(first),
        end_(end) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    if (inputs[0].is_donatable() && inputs[0].data_size() == out.size())
      out.copy_shared_buffer(inputs[0]);
    else
      out.set_data(mx::allocator::malloc(out.nbytes()));
    for (const mx::array& input : inputs) encoder.set_input_array(input);
    encoder.set_output_array(out);
    auto work = std::make_shared<Work>();
    work->held = held_;
    work->x = inputs[0].data<float>();
    if (turns_)
      work->angles = {inputs[1].data<float>(), inputs[2].data<float>(),
                      static_cast<int32_t>(inputs[1].shape(1))};
    size_t next = turns_ ? 3 : 1;
    for (const auto& [start, texts, length] : groups_) {
      TextGroup group{start, texts, length, nullptr, {}, false};
      if (next < inputs.size()) {
        const mx::array& mask = inputs[next++];
        group.mask = mask.data<void>();
        group.mask_bool = mask.dtype() == mx::bool_;
        for (int axis = 0; axis < 4; axis++) group.mask_strides[axis] = mask.strides(axis);
      }
      work->groups.push_back(group);
      for (int text = 0; text < texts; text++)
        for (int token = 0; token < length; token++) work->positions.push_back(token);
    }
    Encoding& encoding = work->encoding;
    encoding.table = &table();
    encoding.rows = inputs[0].shape(0);
    encoding.x = out.data<float>();
    encoding.positions = work->positions.data();
    encoding.groups = work->groups.data();
    encoding.group_count = static_cast<int32_t>(work->groups.size());
    encoding.first = first_;
    encoding.end = end_;
    encoding.angles = turns_ ? &work->angles : nullptr;
    encoding.workers = threads();
    work->scratch = shared_scratch(stream(), scratch_size(held_->layers, encoding));
    dispatch(encoder, [work] { work->run(); });
  }

  const char* name() const override { return "CowmlxEncoder"; }

 private:
  std::shared_ptr<const HeldLayers> held_;
  std::vector<GroupParts> groups_;
  bool turns_;
  int first_, end_;
};

/* Put masks behind the inputs, as (texts, heads, length, length). */
void add_masks(Arrays& inputs, const std::vector<GroupParts>& groups, const Arrays& masks,
               int heads, mx::Stream stream) {
  if (masks.empty()) return;
  if (masks.size() != groups.size()) refuse("there are not as many masks as groups");
  for (size_t i = 0; i < masks.size(); i++) {
    const auto& [start, texts, length] = groups[i];
    mx::array mask = masks[i];
    if (mask.dtype() != mx::bool_) mask = mx::astype(mask, mx::float32, stream);
    inputs.push_back(mx::broadcast_to(mask, {texts, heads, length, length}, stream));
  }
}

mx::array encode_layers(const std::shared_ptr<HeldLayers>& held, const mx::array& x,
                        const std::vector<GroupParts>& groups, const Arrays& angles,
                        const Arrays& masks, int first, std::optional<int> behind) {
  const mx::Stream stream = cpu_stream();
  const Layers& layers = held->layers;
  const int count = static_cast<int>(layers.layers.size()), end = behind.value_or(count);
  if (first < 0 || first >= end || end > count) refuse("there are no such layers");
  if (x.ndim() != 2 || x.shape(1) != layers.width || x.dtype() != mx::float32)
    refuse("x is no array (N, H) of float32");
  int rows = 0, longest = 0;
  for (const auto& [start, texts, length] : groups) {
    if (start != rows || texts < 1 || length < 1) refuse("groups do not follow each other");
    rows += texts * length;
    longest = std::max(longest, length);
  }
  if (rows != x.shape(0) || rows == 0) refuse("groups have another number of tokens than x");
  if (angles.size() != 0 && angles.size() != 2) refuse("cosines and sines do not pair");
  Arrays inputs{plain(x, stream)};
  for (const mx::array& table : angles) {
    if (table.ndim() != 2 || table.dtype() != mx::float32 || table.shape(0) < longest ||
        table.shape(1) != angles[0].shape(1))
      refuse("a table of cosines and sines is too short");
    inputs.push_back(plain(table, stream));
  }
  int heads = 0;
  for (int i = first; i < end; i++) {
    const Layer& layer = layers.layers[i];
    const AttentionHalf& a = layer.attention;
    if (heads != 0 && heads != a.heads) refuse("layers have different numbers of heads");
    heads = a.heads;
    if (!layer.has_mlp || a.groups != a.heads ||
        (a.turn.table >= 0 && (angles.empty() || angles[0].shape(1) * 2 != a.turn.dims)))
      refuse("a layer is no encoder's, or has no table to turn by");
  }
  add_masks(inputs, groups, masks, heads, stream);
  return mx::array(x.shape(), mx::float32,
                   std::make_shared<EncoderStep>(stream, held, groups, !angles.empty(), first, end),
                   std::move(inputs));
}

}  // namespace

void bind_encoder(nb::module_& module) {
  module.def("encode_layers", encode_layers, "layers"_a, "x"_a, "groups"_a, "angles"_a, "masks"_a,
             "first"_a = 0, "end"_a = nb::none(),
             R"(Take the tokens of texts through encoder layers: activations (N, H).

Args:
    layers: of make_layers(), each with an MLP and as many groups as heads. A norm "after" a half
        follows the sum.
    x: (N, H) float32, the tokens of one text behind those of another.
    groups: (start, texts, length) of neighbours of one length.
    angles: cosines and sines (positions, half), if heads turn.
    masks: none, or one for each group, broadcast to (texts, heads, length, length): boolean, or
        added to scores.
    first: the first layer of these.
    end: behind the last one; None: all.)");
}

}  // namespace cowmlx
