"""Arrays put together, parted, repeated and padded."""

from __future__ import annotations

import itertools
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape, at_least, count, divided
from cowmlx.programs.operations import rules
from cowmlx.programs.operations.making import cast, example, moving, row
from cowmlx.programs.operations.row import REQUIRED, Attribute, Attributes, Spec
from cowmlx.programs.operations.rules import fits, promote

AXIS_0 = Attribute("axis", "axis", 0, "The axis.")


def _concatenate(*inputs: Any, **attributes: Any) -> Spec:
    first = inputs[0]
    for at, operand in enumerate(inputs):
        rules.require_rank(f"arrays[{at}]", operand, 1)
    axis = rules.axis_of(attributes["axis"], len(first.shape))
    length: Dim = 0
    for operand in inputs:
        fits = len(operand.shape) == len(first.shape) and all(
            at == axis or rules.equal(here, there)
            for at, (here, there) in enumerate(zip(operand.shape, first.shape, strict=True))
        )
        if not fits:
            raise rules.shapes_refused(
                [first.shape, operand.shape], f"all axes but axis {axis} must be equal"
            )
        length = length + operand.shape[axis]
    dtype = promote([operand.dtype for operand in inputs])
    return rules.spec(rules.replaced(first.shape, axis, length), dtype)


def _parts(length: Dim, attributes: Attributes, shape: Shape) -> list[Dim]:
    """Return the lengths of the parts of an axis."""
    cuts = attributes["indices_or_sections"]
    if isinstance(cuts, int):
        if cuts > MAX_PARTS:
            raise rules.value_refused("indices_or_sections", cuts, f"at most {MAX_PARTS}")
        part = divided(length, cuts) if cuts > 0 else None
        if part is None:
            raise rules.shapes_refused(
                [shape], f"an axis of {length} has no {cuts} parts of one length"
            )
        return [part] * cuts
    places: list[Dim] = [0, *cuts, length]
    lengths: list[Dim] = []
    for before, after in itertools.pairwise(places):
        part = after - before
        if isinstance(part, int) and part < 0:
            raise rules.value_refused(
                "indices_or_sections",
                list(cuts),
                f"places in order, from 0 to the axis' length {length}",
            )
        lengths.append(part)
    return lengths


def _split(given: Any, /, **attributes: Any) -> list[Spec]:
    axis = rules.axis_of(attributes["axis"], len(given.shape))
    lengths = _parts(given.shape[axis], attributes, given.shape)
    return [
        rules.spec(rules.replaced(given.shape, axis, length), given.dtype) for length in lengths
    ]


def _split_arrays(*arrays: Any, **attributes: Any) -> list[mx.array]:
    cuts = attributes["indices_or_sections"]
    cuts = cuts if isinstance(cuts, int) else list(cuts)
    return list(mx.split(arrays[0], cuts, attributes["axis"]))


def _stack(*inputs: Any, **attributes: Any) -> Spec:
    names = [f"arrays[{at}]" for at in range(len(inputs))]
    rules.require_same(names[:2], [operand.shape for operand in inputs])
    shape = inputs[0].shape
    axis = rules.axis_of(attributes["axis"], len(shape) + 1)
    dtype = promote([operand.dtype for operand in inputs])
    return rules.spec((*shape[:axis], len(inputs), *shape[axis:]), dtype)


def _unstack(given: Any, /, **attributes: Any) -> list[Spec]:
    axis = rules.axis_of(attributes["axis"], len(given.shape))
    length = given.shape[axis]
    if not isinstance(length, int) or length > MAX_PARTS:
        raise rules.shapes_refused(
            [given.shape], f"axis {axis} must be a number of at most {MAX_PARTS}"
        )
    return [Spec(given.shape[:axis] + given.shape[axis + 1 :], given.dtype)] * length


def _unstack_arrays(array: Any, /, **attributes: Any) -> list[mx.array]:
    axis = attributes["axis"]
    if array.shape[axis] == 0:
        return []
    parts: Any = mx.split(array, array.shape[axis], axis)
    return [part.squeeze(axis) for part in parts]


def _repeat(shape: Shape, attributes: Attributes) -> Shape:
    axis, times = attributes["axis"], attributes["repeats"]
    if axis is None:
        return (count(shape) * times,)
    axis = rules.axis_of(axis, len(shape))
    return rules.replaced(shape, axis, shape[axis] * times)


def _tile(shape: Shape, attributes: Attributes) -> Shape:
    times = attributes["reps"]
    times = times if isinstance(times, tuple) else (times,)
    rank = max(len(times), len(shape))
    times = (*(1,) * (rank - len(times)), *times)
    full: Shape = (*(1,) * (rank - len(shape)), *shape)
    return tuple(length * each for length, each in zip(full, times, strict=True))


def _roll(shape: Shape, attributes: Attributes) -> Shape:
    axis, shift = attributes["axis"], attributes["shift"]
    axes = rules.axes_of(axis, len(shape))
    if isinstance(shift, tuple) and (axis is None or len(shift) != len(axes)):
        raise rules.value_refused("shift", list(shift), "a number, or one for each of axis")
    return shape


def _roll_array(a: mx.array, shift: Any, axis: Any) -> mx.array:
    if a.size == 0:
        return a
    if axis is None:
        return mx.roll(a, shift % a.size)
    axes = axis if isinstance(axis, tuple) else (axis,)
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
    for each, places in zip(axes, shifts, strict=True):
        a = mx.roll(a, places % a.shape[each], each)
    return a


def _pairs(rank: int, width: Any) -> tuple[tuple[int, int], ...]:
    return width if isinstance(width, tuple) else ((width, width),) * rank


def _pad(given: Any, /, **attributes: Any) -> Spec:
    pairs, mode = _pairs(len(given.shape), attributes["pad_width"]), attributes["mode"]
    if len(pairs) != len(given.shape):
        raise rules.value_refused(
            "pad_width",
            [list(pair) for pair in pairs],
            f"a number, or a pair for each of {len(given.shape)} axes",
        )
    fits("constant_values", attributes["constant_values"], given.dtype)
    spare = {"constant": None, "edge": 1, "reflect": 1, "symmetric": 0}[mode]
    shape: list[Dim] = []
    for axis, (length, pair) in enumerate(zip(given.shape, pairs, strict=True)):
        most = 0 if mode == "edge" else max(pair)
        if spare is not None and any(pair) and at_least(length, most + spare) is False:
            raise rules.shapes_refused(
                [given.shape], f"axis {axis} needs {most + spare} elements for {mode}"
            )
        shape.append(length + pair[0] + pair[1])
    return rules.spec(shape, given.dtype)


def _pad_arrays(array: Any, /, **attributes: Any) -> mx.array:
    pairs = _pairs(array.ndim, attributes["pad_width"])
    if array.ndim == 0 or not any(sum(pair) for pair in pairs):
        return array
    if attributes["mode"] == "constant":
        value = mx.array(attributes["constant_values"], dtype=array.dtype)
        return mx.pad(array, list(pairs), constant_values=value)
    return mx.pad(array, list(pairs), mode=attributes["mode"])


def _meshgrid(*inputs: Any, **attributes: Any) -> list[Spec]:
    for at, operand in enumerate(inputs):
        rules.require_rank(f"arrays[{at}]", operand, 1, 1)
    lengths: list[Dim] = [operand.shape[0] for operand in inputs]
    if attributes["indexing"] == "xy" and len(inputs) > 1:
        lengths[:2] = lengths[1], lengths[0]
    return [rules.spec(lengths, operand.dtype) for operand in inputs]


def _meshgrid_arrays(*arrays: Any, **attributes: Any) -> list[mx.array]:
    return list(mx.meshgrid(*arrays, indexing=attributes["indexing"]))


def _broadcast_arrays(*inputs: Any, **attributes: Any) -> list[Spec]:
    shape = rules.broadcast([operand.shape for operand in inputs])
    return [rules.spec(shape, operand.dtype) for operand in inputs]


MAX_PARTS = 1024
"""Results of one unstack or split."""

_COUNT_LIMIT = 2**24

ROWS = (
    row(
        "concatenate(∂arrays…)",
        _concatenate,
        lambda *arrays, **attributes: mx.concatenate(cast(arrays), attributes["axis"]),
        "Arrays one after the other along an axis.",
        "out = a1 followed by a2 …",
        [
            example("[2,3]", "[1,3]", axis=0),
            example("[2,3]", "[2,1]", "[2,0]", axis=-1),
            example("[2]"),
        ],
        aliases="concat cat",
        attributes=(AXIS_0,),
    ),
    row(
        "split(∂a)",
        _split,
        _split_arrays,
        "An array in parts along an axis.",
        "concatenate(out1, out2, …) = a",
        [
            example("[4,3]", indices_or_sections=2),
            example("[2,6]", indices_or_sections=[1, 4], axis=1),
            example("[2,6]", indices_or_sections=[0, 6], axis=-1),
        ],
        attributes=(
            Attribute(
                "indices_or_sections",
                "int or ints",
                REQUIRED,
                "A number of parts of one length, or the places where parts begin.",
                low=0,
            ),
            AXIS_0,
        ),
        outputs=("parts",),
        outputs_vary=True,
    ),
    row(
        "stack(∂arrays…)",
        _stack,
        lambda *arrays, **attributes: mx.stack(cast(arrays), attributes["axis"]),
        "Arrays of one shape side by side along a new axis.",
        "out[k] = ak",
        [example("[2,3]", "[2,3]"), example("[2]", "[2]", "[2]", axis=-1), example("[]")],
        attributes=(AXIS_0,),
    ),
    row(
        "unstack(∂a)",
        _unstack,
        _unstack_arrays,
        "The arrays that lie side by side along an axis.",
        "outk = a[k]",
        [example("[2,3]"), example("[2,3]", axis=-1)],
        aliases="unbind",
        attributes=(AXIS_0,),
        outputs=("parts",),
        outputs_vary=True,
    ),
    moving(
        "repeat",
        _repeat,
        "Each element so many times, one after the other.",
        "out[i] = a[floor(i / repeats)]",
        [
            example("[2,3]", repeats=2, axis=1),
            example("[3]", repeats=2),
            example("[3]", repeats=0, axis=0),
        ],
        attributes=(
            Attribute("repeats", "int", REQUIRED, "How many times.", low=0, high=_COUNT_LIMIT),
            Attribute("axis", "axis", None, "The axis; null is the flattened array."),
        ),
        aliases="repeat_interleave",
    ),
    moving(
        "tile",
        _tile,
        "The whole array so many times along each axis.",
        "out[i] = a[i mod length]",
        [
            example("[2,3]", reps=[2, 1]),
            example("[3]", reps=2),
            example("[3]", reps=[2, 2]),
            example("[3]", reps=0),
        ],
        lambda a, reps: mx.tile(a, reps),
        attributes=(
            Attribute(
                "reps",
                "int or ints",
                REQUIRED,
                "How many times: a number for the last axis, or one for each.",
                low=0,
                high=_COUNT_LIMIT,
            ),
        ),
    ),
    moving(
        "roll",
        _roll,
        "Elements moved along axes; what falls out at an end comes in at the other.",
        "out[i] = a[(i - shift) mod length]",
        [
            example("[2,3]", shift=1),
            example("[2,3]", shift=[1, -2], axis=[0, 1]),
            example("[2,3]", shift=-4, axis=1),
            example("[0]", shift=3),
        ],
        _roll_array,
        attributes=(
            Attribute("shift", "int or ints", REQUIRED, "How many places, or for each of axis."),
            Attribute("axis", "axis or axes", None, "The axes; null is the flattened array."),
        ),
    ),
    row(
        "pad(∂a)",
        _pad,
        _pad_arrays,
        "More elements before and behind those of each axis.",
        "out[before : before + length] = a",
        [
            example("[2,3]", pad_width=[[1, 0], [0, 2]], constant_values=0.5),
            example("[3]", pad_width=2, mode="edge"),
            example("[4]", pad_width=[[2, 3]], mode="reflect"),
            example("[4]", pad_width=[[2, 4]], mode="symmetric"),
            example("[]", pad_width=1),
        ],
        attributes=(
            Attribute(
                "pad_width",
                "pairs",
                REQUIRED,
                "How many: a number, or [before, after] for each axis.",
                low=0,
            ),
            Attribute(
                "mode",
                "choice",
                "constant",
                "What they are: a constant, the last element, or a mirror without or with it.",
                ("constant", "edge", "reflect", "symmetric"),
            ),
            Attribute("constant_values", "number", 0, "The constant, a number of the dtype."),
        ),
    ),
    row(
        "meshgrid(∂arrays…)",
        _meshgrid,
        _meshgrid_arrays,
        "The coordinates of a grid, an array for each line.",
        "outk[i, j, …] = ak[its index]",
        [example("[2]", "[3]"), example("[2]", "int32[3]", indexing="ij")],
        attributes=(
            Attribute(
                "indexing",
                "choice",
                "xy",
                "Whether the second axis comes first (xy) or axes are in order (ij).",
                ("xy", "ij"),
            ),
        ),
        outputs=("grids",),
        outputs_vary=True,
    ),
    row(
        "broadcast_arrays(∂arrays…)",
        _broadcast_arrays,
        lambda *arrays, **attributes: list(mx.broadcast_arrays(*arrays)),
        "All arrays in the shape in which they meet.",
        "outk = broadcast_to(ak, shape)",
        [example("[2,1]", "int32[3]")],
        outputs=("arrays",),
        outputs_vary=True,
    ),
)
