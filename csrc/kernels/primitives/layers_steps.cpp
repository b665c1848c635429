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

void check_cache(const AttentionHalf& half, const Place& place, const mx::array& keys,
                 const mx::array& values, int rows, int tokens) {
  if (keys.ndim() != 4 || values.ndim() != 4 || keys.shape(0) < rows ||
      values.shape(0) != keys.shape(0) || keys.shape(1) != half.groups ||
      values.shape(1) != half.groups || values.shape(2) != keys.shape(2) ||
      keys.shape(3) != half.key_dim || values.shape(3) != half.value_dim ||
      keys.dtype() != values.dtype() || scalar_of(keys, "keys") == Scalar::UInt8)
    refuse("keys and values are not those of the layer");
  for (int row = 0; row < rows; row++)
    if (place.columns[row] < 0 || place.columns[row] + tokens > keys.shape(2) ||
        place.ends[row] > keys.shape(2) || place.positions[row] < 0)
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
            mx::Dtype type, mx::StreamOrDevice where) {
  LayersCall call{part_of(part_name), {offsets.begin(), offsets.end()}, {}, 0, false};
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
  if (caches.size() != 2 * (layers.layers.size() - first))
    refuse("there are not keys and values for every layer");
  for (size_t i = first; i < layers.layers.size(); i++) {
    const AttentionHalf& half = layers.layers[i].attention;
    if (half.place < 0 || half.place >= static_cast<int>(call.places.size()) ||
        half.turn.table >= call.angles ||
        (half.turn.table >= 0 && angles[2 * half.turn.table].shape(1) * 2 != half.turn.dims))
      refuse("a layer has no place, or no table to turn by");
    const mx::array &keys = caches[2 * (i - first)], &values = caches[2 * (i - first) + 1];
    check_cache(half, call.places[half.place], keys, values, rows, count);
    inputs.push_back(writes ? keys : plain(keys, stream));
    inputs.push_back(writes ? values : plain(values, stream));
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
             "caches"_a, "part"_a = "all", nb::kw_only(), "type"_a = mx::float32,
             "stream"_a = nb::none(),
             R"(Take tokens through layers: activations, then keys and values of every layer.

Args:
    layers: of make_layers().
    x: tokens (B, T) or activations (B, T, H).
    offsets: the position of every row's first token.
    places: (columns, ends, positions, windowed) for every kind of cache: a number for every row.
    angles: evaluated cosines and sines (positions, half) of every kind of rotation.
    caches: keys and values (rows, groups, capacity, dim) of every layer, one after the other.
    part: all, store_last (the last layer writes keys and values, and the activations are those
        before it), or finish_last (the rest; caches are the last layer's).
    type: of the activations that come out.
    stream: of the CPU.

Raises:
    ValueError: something does not fit the layers.)");
}

}  // namespace cowmlx
