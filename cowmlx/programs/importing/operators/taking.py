"""Operators that take elements by their places, or put them there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.dimensions import Dim, Symbolic, at_least, count
from cowmlx.programs.importing.onnx_nodes import MAX_SYMBOLIC, OnnxNode, converts
from cowmlx.programs.importing.operators.shaping import expanded, reshaped
from cowmlx.programs.importing.values import Value, is_symbolic


@converts("Gather")
def _gather(node: OnnxNode) -> Value:
    value, places = node.input(0), node.input(1)
    axis = node.axis(0, value.rank)
    if is_symbolic(value.known):
        known = node.known(1, "indices")
        sides = value.known.shape
        node.bounded([*sides[:axis], *known.shape, *sides[axis + 1 :]], MAX_SYMBOLIC)
        found = np.asarray(np.take(value.known, known, axis), object)
        return node.scope.constant(found, value.dtype)
    return node.apply("take", value, positive(node, places, value.shape[axis]), axis=axis)


def positive(node: OnnxNode, places: Value, side: Dim) -> Value:
    """Return places that count from the front, of those that may count from the end."""
    known = node.scope.known(places)
    if known is not None and not (known < 0).any():
        return places
    if known is not None and isinstance(side, int):
        return node.scope.constant(np.where(known < 0, known + side, known), places.dtype)
    return places


@converts("GatherElements")
def _gather_elements(node: OnnxNode) -> Value:
    value, places = node.input(0), node.input(1)
    axis = node.axis(0, value.rank)
    for at in range(value.rank):
        if at != axis and value.shape[at] != places.shape[at]:
            value = _cut_to(node, value, at, places.shape[at])
    return node.apply("take_along_axis", value, places, axis=axis)


def _cut_to(node: OnnxNode, value: Value, axis: int, side: Dim) -> Value:
    if not isinstance(side, int):
        raise Unsupported(f"its indices have an axis of {side}, and its data {value.spec}")
    return node.apply("slice", value, start=[0], stop=[side], axes=[axis])


@converts("GatherND")
def _gather_nd(node: OnnxNode) -> Value:
    value, places = node.input(0), node.input(1)
    batch = node.attr("batch_dims", 0)
    depth = places.shape[-1]
    if not isinstance(depth, int) or not 1 <= depth <= value.rank - batch:
        raise BadFormat(f"has indices of {places.spec} for data of {value.spec}")
    rows = value.shape[:batch]
    kept = value.shape[batch + depth :]
    sides = value.shape[batch : batch + depth]
    flat = _flat_places(node, places, sides)
    if not batch:
        whole = reshaped(node, value, [count(sides), *kept])
        return node.apply("take", whole, flat, axis=0)
    inner = places.shape[batch:-1]
    whole = reshaped(node, value, [count(rows), count(sides), count(kept)])
    index = reshaped(node, flat, [count(rows), count(inner), 1])
    index = expanded(node, index, [count(rows), count(inner), count(kept)])
    found = node.apply("take_along_axis", whole, index, axis=1)
    return reshaped(node, found, [*rows, *inner, *kept])


def _flat_places(node: OnnxNode, places: Value, sides: Any) -> Value:
    """Return places in a flattened array, of places along each axis in the last axis.

    One that is outside of an axis is outside of the array.
    """
    if not all(isinstance(side, int) for side in sides):
        raise Unsupported(f"axes of {sides} are not known before a run")
    strides = [math.prod(sides[at + 1 :]) for at in range(len(sides))]
    limits = node.scope.constant(np.array(sides), places.dtype)
    zero = node.number(0, places)
    turned = node.apply(
        "where", node.apply("less", places, zero), node.apply("add", places, limits), places
    )
    outside = node.apply("any", _outside(node, turned, limits), axis=-1)
    scaled = node.apply("multiply", turned, node.scope.constant(np.array(strides), places.dtype))
    return node.apply(
        "where", outside, node.number(math.prod(sides), places), node.apply("sum", scaled, axis=-1)
    )


def _outside(node: OnnxNode, places: Value, limits: Value) -> Value:
    """Return which places from the front are beyond an axis."""
    below = node.apply("less", places, node.number(0, places))
    return node.apply("logical_or", below, node.apply("greater_equal", places, limits))


_SCATTERS = {
    "none": "scatter",
    "add": "scatter_add",
    "mul": "scatter_multiply",
    "max": "scatter_max",
    "min": "scatter_min",
}


def _scatter_op(node: OnnxNode) -> str:
    reduction = node.attr("reduction", "none")
    if reduction not in _SCATTERS:
        raise BadFormat(f"has the reduction {reduction!r}")
    return _SCATTERS[reduction]


@converts("ScatterElements", "Scatter")
def _scatter_elements(node: OnnxNode) -> Value:
    value, places, updates = (node.input(at) for at in range(3))
    axis = node.axis(0, value.rank)
    op = _scatter_op(node)
    shape: Any = places.shape
    sides: Any = value.shape
    if not all(isinstance(side, int) for side in (*shape, *sides)):
        raise Unsupported("its shapes are not known before a run")
    node.bounded(shape)
    strides = [math.prod(sides[at + 1 :]) for at in range(value.rank)]
    own = np.indices(shape).astype("int64")
    rest = sum((own[at] * strides[at] for at in range(value.rank) if at != axis), np.zeros(shape))
    side = node.number(sides[axis], places)
    below = node.apply("less", places, node.number(0, places))
    turned = node.apply("where", below, node.apply("add", places, side), places)
    flat = node.apply(
        "add",
        node.apply("multiply", turned, node.number(strides[axis], places)),
        node.scope.constant(np.asarray(rest), places.dtype),
    )
    total, length = math.prod(sides), math.prod(shape)
    flat = node.apply("where", _outside(node, turned, side), node.number(total, places), flat)
    found = node.apply(
        op,
        node.scope.reshape(value, [total]),
        node.scope.reshape(flat, [length]),
        node.scope.reshape(updates, [length]),
    )
    return node.scope.reshape(found, list(value.shape))


@converts("ScatterND")
def _scatter_nd(node: OnnxNode) -> Value:
    value, places, updates = (node.input(at) for at in range(3))
    depth = places.shape[-1]
    if not isinstance(depth, int) or not 1 <= depth <= value.rank:
        raise BadFormat(f"has indices of {places.spec} for data of {value.spec}")
    sides, kept = value.shape[:depth], value.shape[depth:]
    flat = _flat_places(node, places, sides)
    number = count(places.shape[:-1])
    found = node.apply(
        _scatter_op(node),
        reshaped(node, value, [count(sides), *kept]),
        reshaped(node, flat, [number]),
        reshaped(node, updates, [number, *kept]),
    )
    return reshaped(node, found, list(value.shape))


@converts("TensorScatter")
def _tensor_scatter(node: OnnxNode) -> Value:
    value, update = node.input(0), node.input(1)
    axis = node.axis(-2, value.rank)
    side: Any = value.shape[axis]
    length: Any = update.shape[axis]
    rows: Any = value.shape[0]
    if not all(isinstance(each, int) for each in (side, length, rows)):
        raise Unsupported("its shapes are not known before a run")
    node.bounded([rows])
    node.bounded([length])
    starts = node.optional(2)
    if starts is None:
        starts = node.scope.constant(np.zeros(rows), "int64")
    steps = node.scope.constant(np.arange(length), starts.dtype)
    places = node.apply("add", node.scope.reshape(starts, [value.shape[0], 1]), steps)
    if node.attr("mode", "linear") == "circular":
        places = node.apply("remainder", places, node.number(side, places))
    shape: list[Dim] = [1] * value.rank
    shape[0], shape[axis] = value.shape[0], length
    index = expanded(node, node.scope.reshape(places, shape), list(update.shape))
    return node.apply("put_along_axis", value, index, update, axis=axis)


@converts("Slice")
def _slice(node: OnnxNode) -> Value:
    value = node.input()
    starts, stops, axes, steps = _slice_parts(node, value.rank)
    if is_symbolic(value.known):
        whole = [slice(None)] * value.rank
        for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
            first = _first(int(start), value.known.shape[axis], step)  # type: ignore[arg-type]
            whole[axis] = slice(first, int(stop), step)  # type: ignore[arg-type]
        return node.scope.constant(np.asarray(value.known[tuple(whole)], object), value.dtype)
    if all(isinstance(each, int) for each in (*starts, *stops)):
        return _fixed_slice(node, value, starts, stops, axes, steps)
    return _symbolic_slice(node, value, starts, stops, axes, steps)


def _slice_parts(node: OnnxNode, rank: int) -> tuple[list[Dim], list[Dim], list[int], list[int]]:
    if node.opset < 10:
        starts, stops = list(node.needed("starts")), list(node.needed("ends"))
        return starts, stops, node.axes(rank, 99) or list(range(len(starts))), [1] * len(starts)
    starts, stops = node.dims(1, "starts"), node.dims(2, "ends")
    axes = list(range(len(starts)))
    if node.optional(3) is not None:
        axes = [node.axis_of(axis, rank) for axis in node.numbers(3, "axes")]
    steps = node.numbers(4, "steps") if node.optional(4) is not None else [1] * len(starts)
    if not len(starts) == len(stops) == len(axes) == len(steps) or 0 in steps:
        raise BadFormat("its starts, ends, axes and steps do not fit each other")
    return starts, stops, axes, steps


_FAR = 2**31 - 1


def _first(start: int, side: int, step: int) -> int:
    """Return a start that is within the axis where a slice goes backwards."""
    return 0 if step < 0 and start + side < 0 else start


def _fixed_slice(
    node: OnnxNode, value: Value, starts: Any, stops: Any, axes: list[int], steps: list[int]
) -> Value:
    firsts, ends = [], []
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        side = value.shape[axis]
        if isinstance(side, int):
            start, stop, _ = slice(_first(start, side, step), stop, step).indices(side)
            if step < 0 and stop < 0:
                stop = -side - 1
        firsts.append(max(-_FAR, min(_FAR, start)))
        ends.append(max(-_FAR, min(_FAR, stop)))
    steps = [max(-_FAR, min(_FAR, step)) for step in steps]
    return node.apply("slice", value, start=firsts, stop=ends, strides=steps, axes=axes)


def _symbolic_slice(
    node: OnnxNode, value: Value, starts: Any, stops: Any, axes: list[int], steps: list[int]
) -> Value:
    """Slice by dimensions: places are arrays of a run, and sizes symbolic."""
    if any(step != 1 for step in steps):
        raise Unsupported("its steps must be 1 where it cuts at dimensions")
    places, sizes = [], list(value.shape)
    for axis, start, stop in zip(axes, starts, stops, strict=True):
        side = value.shape[axis]
        start, stop = _bounded(start, side), _bounded(stop, side)
        places.append(start)
        sizes[axis] = 0 if at_least(start, stop) else stop - start
    found = np.empty(len(places), object)
    found[:] = places
    symbolic = any(isinstance(place, Symbolic) for place in places)
    index = node.scope.constant(found if symbolic else found.astype("int64"))
    return node.apply("dynamic_slice", value, index, slice_size=sizes, axes=axes)


def _bounded(place: Dim, side: Dim) -> Dim:
    if isinstance(place, int) and place >= _FAR:
        return side
    if isinstance(place, int) and place < 0:
        return side + place
    # -n counts from the end. At n = 0 ONNX takes it for the start; the size of a slice that is
    # right for both would not equal n, and later nodes that need n would be refused.
    if not isinstance(place, int) and at_least(0, place):
        if at_least(side + place, 0):
            return side + place
    elif at_least(side, place):
        return place
    if at_least(place, side):
        return side
    raise Unsupported(f"whether {place} is within an axis of {side} is not known before a run")


@converts("OneHot")
def _one_hot(node: OnnxNode) -> Value:
    places, values = node.input(0), node.input(2)
    depth = node.numbers(1, "depth")[0]
    axis = node.axis(-1, places.rank + 1)
    if depth < 0:
        raise BadFormat(f"has a depth of {depth}")
    node.bounded([depth])
    whole = node.scope.cast(places, "int64")
    below = node.apply("less", whole, node.number(0, whole))
    whole = node.apply("where", below, node.apply("add", whole, node.number(depth, whole)), whole)
    shape = [1] * (places.rank + 1)
    shape[axis] = depth
    steps = node.scope.constant(np.arange(depth).reshape(shape), "int64")
    wide = node.apply("expand_dims", whole, axis=axis)
    hot = node.apply("equal", wide, steps)
    off = node.apply("slice", values, start=[0], stop=[1])
    on = node.apply("slice", values, start=[1], stop=[2])
    return node.apply("where", hot, node.scope.reshape(on, []), node.scope.reshape(off, []))


@converts("Compress")
def _compress(node: OnnxNode) -> Value:
    value = node.input()
    chosen = np.flatnonzero(node.known(1, "condition"))
    axis = node.attr("axis")
    if axis is None:
        value = reshaped(node, value, [count(value.shape)])
        axis = 0
    return node.apply(
        "take", value, node.scope.constant(chosen, "int64"), axis=node.axis_of(axis, value.rank)
    )


@converts("NonZero")
def _non_zero(node: OnnxNode) -> Value:
    array = node.known(0, "result")
    return node.scope.constant(np.array(np.nonzero(array), "int64"))


@converts("ReverseSequence")
def _reverse(node: OnnxNode) -> Value:
    value, lengths = node.input(0), node.input(1)
    batch, time = node.attr("batch_axis", 1), node.attr("time_axis", 0)
    side = value.shape[time]
    if not isinstance(side, int):
        raise Unsupported(f"its axis of {side} is not known before a run")
    node.bounded([side])
    shape = [1] * value.rank
    shape[time] = side
    steps = node.scope.constant(np.arange(side).reshape(shape), "int64")
    wide: list[Dim] = [1] * value.rank
    wide[batch] = value.shape[batch]
    ends = node.scope.reshape(node.scope.cast(lengths, "int64"), wide)
    mirrored = node.apply("subtract", node.apply("subtract", ends, node.number(1, ends)), steps)
    places = node.apply("where", node.apply("less", steps, ends), mirrored, steps)
    index = expanded(node, places, list(value.shape))
    return node.apply("take_along_axis", value, index, axis=time)
