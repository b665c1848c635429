"""Orders of elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, at_least, count
from cowmlx.programs.operations.making import cast, example, row
from cowmlx.programs.operations.promotion import promote
from cowmlx.programs.operations.row import REQUIRED, Attribute, Attributes, Example, Operation, Spec
from cowmlx.programs.operations.rules import (
    REAL,
    axis_of,
    replaced,
    require_dtype,
    require_rank,
    shapes_refused,
    spec,
    value_refused,
)

_AXIS = Attribute("axis", "axis", -1, "The axis; null is the flattened array.", nullable=True)
_SIDE = Attribute(
    "side",
    "choice",
    "left",
    "Whether the place is before or behind equal elements.",
    choices=("left", "right"),
)


def _line(given: Spec, attributes: Attributes) -> tuple[tuple[Dim, ...], int]:
    """Return the shape and axis of what is sorted."""
    require_dtype("a", given, REAL)
    if attributes["axis"] is None:
        return (count(given.shape),), 0
    return given.shape, axis_of(attributes["axis"], len(given.shape))


def _ordered(
    name: str,
    function: Callable[..., mx.array],
    summary: str,
    formula: str,
    *,
    indices: bool = False,
    kth: bool = False,
    differentiable: bool = False,
    examples: Sequence[Example] | None = None,
) -> Operation:
    def infer(inputs: list[Any], attributes: Attributes) -> list[Spec]:
        (given,) = inputs
        shape, axis = _line(given, attributes)
        if kth:
            place, length = attributes["kth"], shape[axis]
            least = place + 1 if place >= 0 else -place
            if at_least(length, least) is False:
                raise value_refused("kth", place, f"a place of an axis of {length}")
        return [spec(shape, "uint32" if indices else given.dtype)]

    def compute(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
        return [function(*arrays, **attributes)]

    where = Attribute("kth", "int", REQUIRED, "The place that gets its element of the order.")
    with_kth = {"kth": 1} if kth else {}
    return row(
        name,
        ("a",),
        infer,
        compute,
        summary,
        formula,
        [
            example("float32[2,4]", **with_kth),
            example("float32[4,2]", axis=0, **with_kth),
            example("float32[2,3]", axis=None, **with_kth),
            *([] if kth else [example("float32[2,0]")]),
        ],
        attributes=(*((where,) if kth else ()), _AXIS),
        differentiable=("a",) if differentiable else (),
    )


def _topk(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    (given,) = inputs
    shape, axis = _line(given, attributes)
    if at_least(shape[axis], attributes["k"]) is False:
        raise value_refused("k", attributes["k"], f"at most the axis' length {shape[axis]}")
    return [spec(replaced(shape, axis, attributes["k"]), given.dtype)]


def _topk_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    (array,) = arrays
    axis, k = attributes["axis"], attributes["k"]
    if axis is None:
        array, axis = array.reshape(-1), 0
    length = array.shape[axis]
    ordered = mx.sort(array, axis=axis)
    before = (slice(None),) * (axis % array.ndim)
    return [ordered[(*before, slice(length - k, length))]]


def _searchsorted(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    line, values = inputs
    for place, given in zip(("sorted_sequence", "values"), inputs, strict=True):
        require_dtype(place, given, REAL)
    require_rank("sorted_sequence", line, 1, 1)
    promote([line.dtype, values.dtype])
    return [spec(values.shape, "uint32")]


def _searchsorted_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    line, values = cast(arrays)
    return [mx.searchsorted(line, values, side=attributes["side"])]


def _unique(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    (given,) = inputs
    require_dtype("a", given, REAL)
    size = attributes["size"]
    if count(given.shape) == 0:
        raise shapes_refused([given.shape], "nothing has no elements to fill up with")
    found = spec((size,), given.dtype)
    return [found, Spec((size,), "int32"), Spec((), "int32")]


def _unique_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    """The first elements of runs of a sorted line, moved to the front in their order."""
    size = attributes["size"]
    line = mx.sort(mx.stop_gradient(arrays[0]).reshape(-1))
    first = mx.concatenate([mx.array([True]), line[1:] != line[:-1]])
    run = mx.cumsum(first.astype(mx.int32)) - 1
    places = mx.arange(size, dtype=mx.int32)
    counts = mx.sum((run[None] == places[:, None]).astype(mx.int32), axis=1)
    starts = mx.sum((run[None] < places[:, None]).astype(mx.int32), axis=1)
    found = mx.take(line, mx.minimum(starts, line.size - 1))
    return [found, counts, run[-1] + 1]


ROWS = (
    _ordered(
        "sort",
        mx.sort,
        "The elements in ascending order; nan is last.",
        "out[i] <= out[i + 1]",
        differentiable=True,
    ),
    _ordered(
        "argsort",
        mx.argsort,
        "The indices, as uint32, that sort an array.",
        "take(a, out) = sort(a)",
        indices=True,
    ),
    _ordered(
        "partition",
        mx.partition,
        "The elements so that smaller ones are before the kth of the order, larger ones behind.",
        "out[i] <= out[kth] <= out[j] for i < kth < j",
        kth=True,
        differentiable=True,
    ),
    _ordered(
        "argpartition",
        mx.argpartition,
        "The indices, as uint32, that partition an array.",
        "take(a, out) = partition(a)",
        indices=True,
        kth=True,
    ),
    row(
        "topk",
        ("a",),
        _topk,
        _topk_arrays,
        "The k largest elements along an axis, in ascending order.",
        "out = the last k of sort(a)",
        [
            example("float32[2,5]", k=2),
            example("float32[5,2]", k=5, axis=0),
            example("float32[2,3]", k=4, axis=None),
            example("float32[2,3]", k=0),
        ],
        aliases=("top_k",),
        attributes=(Attribute("k", "int", REQUIRED, "How many.", low=0), _AXIS),
        differentiable=("a",),
    ),
    row(
        "searchsorted",
        ("sorted_sequence", "values"),
        _searchsorted,
        _searchsorted_arrays,
        "Where values belong in a sorted array, as uint32.",
        "sorted_sequence[out - 1] < values <= sorted_sequence[out]",
        [
            example("float32[5] sorted", "float32[2,3]"),
            example("float32[5] sorted", "float32[]", side="right"),
            example("float32[0]", "float32[2]"),
        ],
        attributes=(_SIDE,),
        stacks=(1,),
    ),
    row(
        "unique",
        ("a",),
        _unique,
        _unique_arrays,
        "The smallest elements that differ, in order, how often each is there, and how many differ "
        "in all; behind the last one the largest is repeated, with count 0.",
        "values ascending, a has values[i] counts[i] times",
        [example("int32[8] 0..4", size=4), example("float32[2,3]", size=8)],
        attributes=(
            Attribute(
                "size", "int", REQUIRED, "How many the result has room for.", low=1, high=4096
            ),
        ),
        outputs=("values", "counts", "different"),
    ),
)
