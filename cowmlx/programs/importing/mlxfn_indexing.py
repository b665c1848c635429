"""Slices, gathers and scatters of MLX as operations of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.importing.mlxfn_node import Node, choice, converts, sides_of
from cowmlx.programs.importing.scope import INLINED
from cowmlx.programs.importing.values import Value
from cowmlx.programs.operations.slicing import END

# --------------------------------------------------------------------- slices


def _bounds(node: Node, shape: Sequence[Any]) -> list[tuple[int, int, int]]:
    """Return start, stop and stride of each axis, as numpy's indices of slices are."""
    starts, stops, strides = node.state[-3:]
    bounds = []
    for length, start, stop, stride in zip(shape, starts, stops, strides, strict=True):
        if stride == 0:
            raise BadFormat("a stride is 0")
        stop = stop + length if stop < 0 else stop
        bounds.append((start, max(stop, -1 if stride < 0 else 0), stride))
    return bounds


def _slice_of(node: Node, value: Value) -> Value:
    bounds = _bounds(node, value.shape)
    return node.apply(
        "slice",
        value,
        start=[start for start, _, _ in bounds],
        stop=[-END if stop < 0 else stop for _, stop, _ in bounds],
        strides=[stride for _, _, stride in bounds],
    )


@converts("III", "Slice")
def _slice(node: Node) -> Value:
    return _slice_of(node, node.inputs[0])


@converts("iIII", "SliceUpdate")
def _slice_update(node: Node) -> Value:
    array, update = node.inputs
    way = choice(node.state[0], ("maximum", "minimum", "add", "multiply", "set"))
    if way != "set":
        update = node.apply(way, _slice_of(node, array), update)
    bounds = _bounds(node, array.shape)
    if all(stride == 1 for _, _, stride in bounds):
        starts = node.scope.constant(np.array([start for start, _, _ in bounds], "int32"))
        return node.apply("slice_update", array, update, starts) if bounds else update
    size = prod(sides_of(array))
    if size > INLINED:
        raise Unsupported(f"strides into {size} elements, must be {INLINED} at most")
    places = np.arange(size, dtype="int32").reshape(sides_of(array))
    parts = [slice(a, None if b < 0 else b, c) for a, b, c in bounds]
    where = node.scope.constant(places[tuple(parts)].reshape(-1))
    flat = node.scope.reshape(array, [-1])
    put = node.apply("scatter", flat, where, node.scope.reshape(update, [-1]), axis=0)
    return node.scope.reshape(put, array.shape)


# -------------------------------------------------------------------- indices


def _flat_index(node: Node, indices: Sequence[Value], sizes: Sequence[int]) -> Value:
    """Return one index into axes that were joined, of an index into each."""
    if len(indices) == 1:
        return indices[0]
    kind = "int64" if prod(sizes) >= 1 << 31 else "int32"
    total = None
    for at, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        part = node.scope.cast(index, kind)
        if not index.dtype.startswith("u"):
            wrapped = node.apply("add", part, node.scope.constant(size, kind))
            below = node.apply("less", part, node.scope.constant(0, kind))
            part = node.apply("where", below, wrapped, part)
        part = node.apply("multiply", part, node.scope.constant(prod(sizes[at + 1 :]), kind))
        total = part if total is None else node.apply("add", total, part)
    assert total is not None
    return total


@dataclass
class _Taking:
    """Axes that indices choose from, moved to the front and joined.

    Args:
        order: the array's axes, those of indices first.
        shape: of the array in that order, its first axes joined.
        index: into the first axis.
    """

    order: list[int]
    shape: list[int]
    index: Value


def _taking(node: Node, array: Value, axes: list[int], indices: Sequence[Value]) -> _Taking:
    if not axes or len(axes) != len(indices) or len({*axes}) != len(axes):
        raise Unsupported(f"{len(indices)} indices into {len(axes)} axes")
    others = [axis for axis in range(array.rank) if axis not in axes]
    sides = sides_of(array)
    sizes, rest = [sides[axis] for axis in axes], [sides[axis] for axis in others]
    index = _flat_index(node, indices, sizes)
    return _Taking([*axes, *others], [prod(sizes), *rest], index)


@converts("II", "Gather")
def _gather(node: Node) -> Value:
    array, *indices = node.inputs
    axes, sizes = node.state
    if len(sizes) != array.rank or any(not 0 <= axis < array.rank for axis in axes):
        raise BadFormat(f"slices of {len(sizes)} axes from {array.rank}")
    if any(sizes[axis] != 1 for axis in axes):
        raise Unsupported("slices that begin at an index are longer than 1")
    if sizes != [1 if axis in axes else side for axis, side in enumerate(array.shape)]:
        array = node.apply(
            "slice",
            array,
            start=[0] * len(sizes),
            stop=[END if axis in axes else many for axis, many in enumerate(sizes)],
        )
    if not axes:
        return node.scope.reshape(array, node.shape)
    taking = _taking(node, array, axes, indices)
    lines = node.scope.reshape(node.scope.transpose(array, taking.order), taking.shape)
    return node.scope.reshape(node.apply("take", lines, taking.index, axis=0), node.shape)


@converts("iI", "Scatter")
def _scatter(node: Node) -> Value:
    array, *indices, updates = node.inputs
    kind, axes = node.state
    op = choice(kind, ("scatter_max", "scatter_min", "scatter_add", "scatter_multiply", "scatter"))
    taking = _taking(node, array, axes, indices)
    wanted = [*taking.index.shape, *taking.shape[1:]]
    sides = [1 if axis in axes else side for axis, side in enumerate(array.shape)]
    if list(updates.shape) != [*taking.index.shape, *sides]:
        raise Unsupported("updates are shorter or longer than what they replace")
    lines = node.scope.reshape(node.scope.transpose(array, taking.order), taking.shape)
    put = node.apply(op, lines, taking.index, node.scope.reshape(updates, wanted), axis=0)
    turned = [array.shape[axis] for axis in taking.order]
    back = [int(axis) for axis in np.argsort(taking.order)]
    return node.scope.transpose(node.scope.reshape(put, turned), back)


@converts("ii", "ScatterAxis")
def _scatter_axis(node: Node) -> Value:
    array, indices, updates = node.inputs
    kind, axis = node.state
    if choice(kind, ("add", "set")) == "set":
        return node.apply("put_along_axis", array, indices, updates, axis=axis)
    shape = sides_of(indices)
    if 0 in shape:
        return array
    if prod(shape) > INLINED:
        raise Unsupported(f"sums at {prod(shape)} indices, must be {INLINED} at most")
    beside = np.indices(shape)
    chosen = [
        indices if at == axis else node.scope.constant(beside[at].astype("int32"))
        for at in range(len(shape))
    ]
    index = _flat_index(node, chosen, sides_of(array))
    flat = node.scope.reshape(array, [-1])
    line = node.scope.reshape(index, [-1])
    put = node.apply("scatter_add", flat, line, node.scope.reshape(updates, [-1]), axis=0)
    return node.scope.reshape(put, array.shape)


@converts("b", "SearchSorted")
def _search_sorted(node: Node) -> Value:
    side = "right" if node.state[0] else "left"
    return node.apply("searchsorted", *node.inputs, side=side)
