"""Orders of elements."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Shape, at_least, count
from cowmlx.programs.operations import rules
from cowmlx.programs.operations.devices import ordering
from cowmlx.programs.operations.making import cast, example, moving, row
from cowmlx.programs.operations.row import REQUIRED, Attribute, Attributes, Operation, Spec
from cowmlx.programs.operations.rules import promote

_AXIS = Attribute("axis", "axis", -1, "The axis; null is the flattened array.", nullable=True)
_KTH = Attribute("kth", "int", REQUIRED, "The place that gets its element of the order.")
_SIDE = Attribute(
    "side",
    "choice",
    "left",
    "Whether the place is before or behind equal elements.",
    ("left", "right"),
)


def _line(shape: Shape, attributes: Attributes) -> tuple[Shape, int]:
    """Return the shape and axis of what is sorted."""
    if attributes["axis"] is None:
        return (count(shape),), 0
    return shape, rules.axis_of(attributes["axis"], len(shape))


def _ordered(
    name: str, summary: str, formula: str, *, indices: bool = False, kth: bool = False
) -> Operation:
    def rule(given: Shape, attributes: Attributes) -> Shape:
        shape, axis = _line(given, attributes)
        if kth:
            place, length = attributes["kth"], shape[axis]
            least = place + 1 if place >= 0 else -place
            if at_least(length, least) is False:
                raise rules.value_refused("kth", place, f"a place of an axis of {length}")
        return shape

    with_kth = {"kth": 1} if kth else {}
    return moving(
        name,
        rule,
        summary,
        formula,
        [
            example("[2,4]", **with_kth),
            example("[4,2]", axis=0, **with_kth),
            example("[2,3]", axis=None, **with_kth),
            *([] if kth else [example("[2,0]")]),
        ],
        ordering(getattr(mx, name)),
        accepted=rules.REAL,
        result=lambda dtype: "uint32" if indices else dtype,
        attributes=(_KTH, _AXIS) if kth else (_AXIS,),
        differentiable=not indices,
    )


def _topk(given: Shape, attributes: Attributes) -> Shape:
    (shape, axis), k = _line(given, attributes), attributes["k"]
    if at_least(shape[axis], k) is False:
        raise rules.value_refused("k", k, f"at most the axis' length {shape[axis]}")
    return rules.replaced(shape, axis, k)


def _topk_array(a: mx.array, k: int, axis: int | None) -> mx.array:
    if axis is None:
        a, axis = a.reshape(-1), 0
    length = a.shape[axis]
    before = (slice(None),) * (axis % a.ndim)
    return mx.sort(a, axis=axis)[(*before, slice(length - k, length))]


def _searchsorted(*inputs: Any, **attributes: Any) -> Spec:
    line, values = inputs
    for place, given in zip(("sorted_sequence", "values"), inputs, strict=True):
        rules.require_dtype(place, given, rules.REAL)
    rules.require_rank("sorted_sequence", line, 1, 1)
    promote([line.dtype, values.dtype])
    return rules.spec(values.shape, "uint32")


def _searchsorted_arrays(line: Any, values: Any, /, **attributes: Any) -> mx.array:
    line, values = cast([line, values])
    return mx.searchsorted(line, values, side=attributes["side"])


def _unique(given: Any, /, **attributes: Any) -> list[Spec]:
    rules.require_dtype("a", given, rules.REAL)
    size = attributes["size"]
    if count(given.shape) == 0:
        raise rules.shapes_refused([given.shape], "nothing has no elements to fill up with")
    return [rules.spec((size,), given.dtype), rules.spec((size,), "int32"), rules.spec((), "int32")]


def _unique_arrays(*arrays: Any, **attributes: Any) -> list[mx.array]:
    """The first elements of runs of a sorted line, which begin where the runs before them end."""
    size = attributes["size"]
    line = ordering(mx.sort)(mx.stop_gradient(arrays[0]).reshape(-1))
    first = mx.concatenate([mx.array([True]), line[1:] != line[:-1]])
    run = mx.cumsum(first.astype(mx.int32)) - 1
    # What is beyond the room goes to a place behind it.
    counts = mx.zeros((size + 1,), mx.int32).at[mx.minimum(run, size)].add(1)[:size]
    starts = mx.cumsum(counts) - counts
    result = mx.take(line, mx.minimum(starts, line.size - 1))
    return [result, counts, run[-1] + 1]


ROWS = (
    _ordered("sort", "The elements in ascending order; nan is last.", "out[i] <= out[i + 1]"),
    _ordered(
        "argsort",
        "The indices, as uint32, that sort an array.",
        "take(a, out) = sort(a)",
        indices=True,
    ),
    _ordered(
        "partition",
        "The elements so that smaller ones are before the kth of the order, larger ones behind.",
        "out[i] <= out[kth] <= out[j] for i < kth < j",
        kth=True,
    ),
    _ordered(
        "argpartition",
        "The indices, as uint32, that partition an array.",
        "take(a, out) = partition(a)",
        indices=True,
        kth=True,
    ),
    moving(
        "topk",
        _topk,
        "The k largest elements along an axis, in ascending order.",
        "out = the last k of sort(a)",
        [
            example("[2,5]", k=2),
            example("[5,2]", k=5, axis=0),
            example("[2,3]", k=4, axis=None),
            example("[2,3]", k=0),
        ],
        ordering(_topk_array),
        accepted=rules.REAL,
        aliases="top_k",
        attributes=(Attribute("k", "int", REQUIRED, "How many.", low=0), _AXIS),
    ),
    row(
        "searchsorted(sorted_sequence, values)",
        _searchsorted,
        _searchsorted_arrays,
        "Where values belong in a sorted array, as uint32.",
        "sorted_sequence[out - 1] < values <= sorted_sequence[out]",
        [
            example("[5] sorted", "[2,3]"),
            example("[5] sorted", "[]", side="right"),
            example("[0]", "[2]"),
        ],
        attributes=(_SIDE,),
        stacks=(1,),
    ),
    row(
        "unique(a)",
        _unique,
        _unique_arrays,
        "The smallest elements that differ, in order, how often each is there, and how many differ "
        "in all; behind the last one the largest is repeated, with count 0.",
        "values ascending, a has values[i] counts[i] times",
        [example("int32[8] 0..4", size=4), example("[2,3]", size=8)],
        attributes=(
            Attribute(
                "size", "int", REQUIRED, "How many the result has room for.", low=1, high=4096
            ),
        ),
        outputs=("values", "counts", "different"),
    ),
)
