/* A token a row, over caches as Python's objects hold them: what decoding does between two samples.
 * All that may be missing here, such as room in a cache, makes it do nothing, and the way in Python
 * (cowmlx/accelerate/fused/run.py) is taken instead. */
#include "layers.h"

namespace cowmlx {
namespace {

/* The names of attributes, made once: they are asked for again and again. */
struct Names {
  static PyObject* name(const char* text) { return PyUnicode_InternFromString(text); }

  PyObject *keys = name("keys"), *values = name("values"), *offset = name("offset"),
           *buffers = name("buffers"), *rows = name("rows"), *all = name("all"),
           *length = name("length"), *width = name("width"), *bits = name("bits"),
           *group_size = name("group_size");
};

const Names& names() {
  static const auto* all = new Names;
  return *all;
}

nb::object get(nb::handle of, PyObject* name) {
  PyObject* found = PyObject_GetAttr(of.ptr(), name);
  if (found == nullptr) throw nb::python_error();
  return nb::steal<nb::object>(found);
}

void set(nb::handle of, PyObject* name, nb::handle value) {
  if (PyObject_SetAttr(of.ptr(), name, value.ptr()) != 0) throw nb::python_error();
}

/* How a cache whose class says so has quantized what it holds. */
KVQuantization quantization_of(nb::handle cache) {
  return {nb::cast<int>(get(cache, names().bits)), nb::cast<int>(get(cache, names().group_size))};
}

bool take(nb::handle array, int rows, bool exactly, Arrays& to) {
  to.push_back(nb::cast<mx::array>(array));
  const mx::array& taken = to.back();
  return taken.ndim() == 4 && (exactly ? taken.shape(0) == rows : taken.shape(0) >= rows);
}

nb::tuple three(const mx::array* arrays) { return nb::make_tuple(arrays[0], arrays[1], arrays[2]); }

/* One sequence's caches, mlx-lm's KVCache: `keys`, `values` and `offset`; of QuantizedKVCache, the
 * first two are three arrays each. */
template <bool QUANTIZED>
struct Growing {
  static bool offsets(nb::handle cache, int rows, std::vector<int32_t>& to) {
    to.assign(static_cast<size_t>(rows), nb::cast<int>(get(cache, names().offset)));
    return true;
  }

  static bool alike(nb::handle cache, nb::handle, const std::vector<int32_t>& offsets) {
    return nb::cast<int>(get(cache, names().offset)) == offsets.front();
  }

  static bool read(nb::handle cache, int rows, Arrays& to) {
    for (PyObject* name : {names().keys, names().values}) {
      const nb::object held = get(cache, name);
      if (held.is_none()) return false;
      if constexpr (!QUANTIZED) {
        if (!take(held, rows, true, to)) return false;
      } else {
        if (nb::len(held) != 3) return false;
        for (nb::handle part : held)
          if (!take(part, rows, true, to)) return false;
      }
    }
    return true;
  }

  static void write(nb::handle cache, const mx::array* made, int32_t offset) {
    set(cache, names().keys, QUANTIZED ? three(made) : nb::cast(made[0]));
    set(cache, names().values, QUANTIZED ? three(made + 3) : nb::cast(made[1]));
    set(cache, names().offset, nb::int_(offset + 1));
  }
};

/* The rows of a batch (cowmlx/cache/key_values.py), which moves them on. */
template <bool QUANTIZED>
struct Rows {
  static bool offsets(nb::handle cache, int rows, std::vector<int32_t>& to) {
    const nb::object owner = get(cache, names().rows);
    const auto all = nb::cast<nb::list>(get(owner, names().all));
    if (nb::len(all) != static_cast<size_t>(rows) || nb::cast<int>(get(owner, names().width)) != 1)
      return false;
    for (nb::handle row : all) to.push_back(nb::cast<int>(get(row, names().length)));
    return true;
  }

  static bool alike(nb::handle cache, nb::handle first, const std::vector<int32_t>&) {
    return get(cache, names().rows).is(get(first, names().rows));
  }

  static bool read(nb::handle cache, int rows, Arrays& to) {
    const auto buffers = nb::cast<nb::list>(get(cache, names().buffers));
    if (nb::len(buffers) != (QUANTIZED ? 6 : 2)) return false;
    for (nb::handle buffer : buffers)
      if (!take(buffer, rows, false, to)) return false;
    return true;
  }

  static void write(nb::handle cache, const mx::array* made, int32_t) {
    nb::list buffers;
    for (int part = 0; part < (QUANTIZED ? 6 : 2); part++) buffers.append(nb::cast(made[part]));
    set(cache, names().buffers, buffers);
  }
};

bool has_room(const Arrays& caches, int32_t end, bool quantized) {
  return std::all_of(caches.begin(), caches.end(), [=](const mx::array& each) {
    return each.shape(2) >= end &&
           (each.dtype() == mx::float32 || each.dtype() == mx::float16 ||
            each.dtype() == mx::bfloat16 || (quantized && each.dtype() == mx::uint32));
  });
}

std::vector<Place> places_of(const Layers& layers, const std::vector<int32_t>& offsets) {
  std::vector<int32_t> ends = offsets;
  for (int32_t& end : ends) end++;
  std::vector<Place> places;
  for (const Layer& layer : layers.layers) {
    const auto index = static_cast<size_t>(layer.attention.place);
    if (places.size() <= index) places.resize(index + 1, {offsets, ends, offsets, false});
    places[index].windowed = layer.attention.window > 0;
  }
  return places;
}

/* Make the places of rows their positions; false if shifts are not one for every row. */
bool shift(std::vector<int32_t>& offsets, const std::vector<int>& shifts) {
  if (shifts.empty()) return true;
  if (shifts.size() != offsets.size()) return false;
  for (size_t row = 0; row < offsets.size(); row++) offsets[row] += shifts[row];
  return true;
}

template <template <bool> class Kind, bool QUANTIZED>
std::optional<mx::array> decode(const std::shared_ptr<HeldLayers>& held, const mx::array& ids,
                                const nb::list& caches, const Arrays& angles,
                                const std::vector<int>& shifts, mx::Stream stream) {
  using Form = Kind<QUANTIZED>;
  const Layers& layers = held->layers;
  const int rows = ids.shape(0);
  const nb::handle first = caches[0];
  LayersCall call{Part::All, {}, {}, 0, true, {}};
  if constexpr (QUANTIZED) call.quantization = quantization_of(first);
  if (!Form::offsets(first, rows, call.offsets)) return std::nullopt;
  Arrays buffers;
  buffers.reserve((QUANTIZED ? 6 : 2) * layers.layers.size() + 1);
  for (nb::handle cache : caches) {
    if (!cache.type().is(first.type()) || !Form::alike(cache, first, call.offsets) ||
        !Form::read(cache, rows, buffers))
      return std::nullopt;
    if (QUANTIZED && quantization_of(cache) != call.quantization) return std::nullopt;
  }
  const std::vector<int32_t> offsets = call.offsets;
  const int32_t end = *std::max_element(offsets.begin(), offsets.end()) + 1;
  if (!has_room(buffers, end, QUANTIZED)) return std::nullopt;
  if (!shift(call.offsets, shifts)) return std::nullopt;
  const int32_t last = *std::max_element(call.offsets.begin(), call.offsets.end());
  for (const mx::array& table : angles)
    if (table.shape(0) <= last) return std::nullopt;
  call.places = places_of(layers, offsets);
  const Arrays made = make_step(held, ids, std::move(call), angles, buffers, mx::float32, stream);
  const mx::array* next = made.data() + 1;
  for (nb::handle cache : caches) {
    Form::write(cache, next, offsets.front());
    next += QUANTIZED ? 6 : 2;
  }
  return made[0];
}

std::optional<mx::array> decode_layers(const std::shared_ptr<HeldLayers>& held,
                                       const mx::array& ids, const nb::list& caches, bool batched,
                                       bool quantized, const Arrays& angles,
                                       const std::vector<int>& shifts) {
  const size_t tables = angles.size() / 2;
  const bool turns = std::all_of(held->layers.layers.begin(), held->layers.layers.end(),
                                 [tables](const Layer& layer) {
                                   return layer.attention.turn.table < static_cast<int32_t>(tables);
                                 });
  if (held->layers.head.rows == 0 || ids.ndim() != 1 || ids.size() == 0 || !turns ||
      nb::len(caches) != held->layers.layers.size())
    return std::nullopt;
  const mx::Stream stream = cpu_stream();
  if (quantized)
    return batched ? decode<Rows, true>(held, ids, caches, angles, shifts, stream)
                   : decode<Growing, true>(held, ids, caches, angles, shifts, stream);
  return batched ? decode<Rows, false>(held, ids, caches, angles, shifts, stream)
                 : decode<Growing, false>(held, ids, caches, angles, shifts, stream);
}

}  // namespace

void bind_layers_decode(nb::module_& module) {
  module.def("decode_layers", decode_layers, "layers"_a, "ids"_a, "caches"_a, "batched"_a,
             "quantized"_a, "angles"_a, "shifts"_a,
             R"(Take a token of every row through layers and their head: logits (B, V) of float32.

Args:
    layers: of make_layers(), with a head.
    ids: (B,) tokens of 32 bits.
    caches: of the layers, all KVCache, or all KVRows of one batch; they hold the tokens afterwards.
    batched: which of both.
    quantized: whether they are QuantizedKVCache or QuantizedRows instead.
    angles: evaluated cosines and sines (positions, half) of every kind of rotation.
    shifts: what is added to the tokens of every row's cache to get its position; none: 0.

Returns:
    None, and nothing has changed, where a cache has no room, or a table is too short.)");
}

}  // namespace cowmlx
