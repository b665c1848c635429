/* Steps of layers as Python asks for them. */

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "activations.h"
#include "bindings.h"
#include "dispatch.h"
#include "layers.h"

namespace mx = mlx::core;
namespace nb = nanobind;
using namespace nb::literals;

namespace cowmlx {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

void check_place(const Place& place, int rows) {
  const auto size = static_cast<size_t>(rows);
  if (place.columns.size() != size || place.ends.size() != size || place.positions.size() != size)
    refuse("a place has not a number for every row");
}

void check_packing(const KVPacking& packing) {
  if (packing.bits == 0 && packing.group == 0) return;
  if ((packing.bits != 4 && packing.bits != 8) || packing.group < 32 || packing.group % 32 != 0 ||
      packing.group > MOST_PACKED_GROUP)
    refuse("no kernel writes caches of " + std::to_string(packing.bits) + " bits in groups of " +
           std::to_string(packing.group));
}

/* Whether arrays are keys or values of `dim` numbers that lie as `like` does. */
bool is_stored(const mx::array* arrays, const KVPacking& packing, int groups, int dim,
               const mx::array& like, mx::Dtype type) {
  if (packing.bits != 0 && (dim % packing.group != 0 || arrays[0].dtype() != mx::uint32))
    return false;
  for (int part = 0; part < packing.parts(); part++) {
    const mx::array& each = arrays[part];
    int numbers = dim;
    if (packing.bits != 0) numbers = part == 0 ? dim * packing.bits / 32 : dim / packing.group;
    if (each.ndim() != 4 || each.shape(0) != like.shape(0) || each.shape(1) != groups ||
        each.shape(2) != like.shape(2) || each.shape(3) != numbers)
      return false;
    if ((packing.bits == 0 || part > 0) && each.dtype() != type) return false;
  }
  return true;
}

void check_cache(const AttentionHalf& half, const Place& place, const KVPacking& packing,
                 const mx::array* arrays, int rows, int tokens) {
  const mx::array &first = arrays[0], &last = arrays[2 * packing.parts() - 1];
  if (first.ndim() != 4 || first.shape(0) < rows || scalar_of(last, "keys") == Scalar::UInt8 ||
      !is_stored(arrays, packing, half.groups, half.key_dim, first, last.dtype()) ||
      !is_stored(arrays + packing.parts(), packing, half.groups, half.value_dim, first,
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

/* (columns, ends, positions, windowed), a number for every row of the batch each. */
using PlaceParts = std::tuple<std::vector<int>, std::vector<int>, std::vector<int>, bool>;

Arrays step(const std::shared_ptr<HeldLayers>& held, const mx::array& x,
            const std::vector<int>& offsets, const std::vector<PlaceParts>& places,
            const Arrays& angles, const Arrays& caches, const std::string& part_name,
            mx::Dtype type, int bits, int group, mx::StreamOrDevice where) {
  LayersCall call{part_of(part_name), {offsets.begin(), offsets.end()}, {}, 0, false,
                  {bits, group}};
  for (const auto& [columns, ends, positions, windowed] : places)
    call.places.push_back({columns, ends, positions, windowed});
  return make_step(held, x, std::move(call), angles, caches, type, stream_of(where));
}

}  // namespace

Arrays make_step(const std::shared_ptr<const HeldLayers>& held, const mx::array& x, LayersCall call,
                 const Arrays& angles, const Arrays& caches, mx::Dtype type, mx::Stream stream) {
  const Layers& layers = held->layers;
  const bool tokens = x.ndim() == 1 || x.ndim() == 2;
  if (tokens ? layers.embedding.rows == 0 || x.itemsize() != 4
             : x.ndim() != 3 || x.shape(2) != layers.width || scalar_of(x, "x") == Scalar::UInt8)
    refuse(
        "x is neither tokens (B,) or (B, T) of 32 bits for an embedding, nor activations (B, T, "
        "H)");
  const int rows = x.shape(0), count = x.ndim() == 1 ? 1 : x.shape(1);
  if (call.offsets.size() != static_cast<size_t>(rows) || count < 1)
    refuse("there are not as many offsets as rows");
  if (call.logits && (layers.head.rows == 0 || count != 1 || call.part != Part::All))
    refuse("logits take a head, and one token a row");
  for (const Place& place : call.places) check_place(place, rows);
  if (angles.size() % 2 != 0) refuse("cosines and sines do not pair");
  call.angles = static_cast<int>(angles.size() / 2);
  Arrays inputs{x};
  inputs.reserve(1 + angles.size() + caches.size());
  int longest = 0;
  for (int offset : call.offsets) {
    if (offset < 0) refuse("an offset is below 0");
    longest = std::max(longest, offset + count);
  }
  for (size_t i = 0; i < angles.size(); i++) {
    const mx::array& table = angles[i];
    if (table.ndim() != 2 || table.dtype() != mx::float32 || table.shape(0) < longest ||
        !table.is_available() || !table.flags().row_contiguous ||
        table.shape(1) != angles[i / 2 * 2].shape(1))
      refuse("a table of cosines and sines is too short, or not evaluated");
    inputs.push_back(table);
  }
  const bool writes = call.part != Part::FinishLast;
  const size_t first = writes ? 0 : layers.layers.size() - 1;
  check_packing(call.packing);
  const size_t each = 2 * static_cast<size_t>(call.packing.parts());
  if (caches.size() != each * (layers.layers.size() - first))
    refuse("there are not keys and values for every layer");
  for (size_t i = first; i < layers.layers.size(); i++) {
    const AttentionHalf& half = layers.layers[i].attention;
    if (half.place < 0 || half.place >= static_cast<int>(call.places.size()) ||
        half.turn.table >= call.angles ||
        (half.turn.table >= 0 && angles[2 * half.turn.table].shape(1) * 2 != half.turn.dims))
      refuse("a layer has no place, or no table to turn by");
    const mx::array* own = caches.data() + each * (i - first);
    check_cache(half, call.places[half.place], call.packing, own, rows, count);
    for (size_t part = 0; part < each; part++)
      inputs.push_back(writes ? own[part] : plain(own[part], stream));
  }
  std::vector<mx::Shape> shapes;
  if (call.logits)
    shapes.push_back({rows, layers.head.rows});
  else
    shapes.push_back({rows, count, layers.width});
  std::vector<mx::Dtype> types{type};
  if (writes)
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
             "group"_a = 0, "stream"_a = nb::none(),
             R"(Take tokens through layers: activations, then keys and values of every layer.

Args:
    layers: of make_layers().
    x: tokens (B, T) or activations (B, T, H).
    offsets: the position of every row's first token.
    places: (columns, ends, positions, windowed) for every kind of cache: a number for every row.
    angles: evaluated cosines and sines (positions, half) of every kind of rotation.
    caches: keys and values (rows, groups, capacity, dim) of every layer, one after the other;
        packed, each as words, scales and biases.
    part: all, store_last (the last layer writes keys and values, and the activations are those
        before it), or finish_last (the rest; caches are the last layer's).
    type: of the activations that come out.
    bits, group: of mlx's affine packing, where caches have it: 4 or 8, and 32, 64, 96 or 128.
    stream: of the CPU.

Raises:
    ValueError: something does not fit the layers.)");
}

}  // namespace cowmlx
