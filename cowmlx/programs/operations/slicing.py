"""Parts of arrays: slices, windows at starts that an array has, diagonals and triangles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape, at_least
from cowmlx.programs.operations import rules
from cowmlx.programs.operations.indices import (
    INDICES,
    Check,
    check_range,
    require_indices,
    safe,
    taken,
)
from cowmlx.programs.operations.making import example, moving, row
from cowmlx.programs.operations.reductions import summed
from cowmlx.programs.operations.row import REQUIRED, Attribute, Attributes, Operation, Spec
from cowmlx.programs.operations.rules import axes_of, equal, shapes_refused

END = 2**31 - 1
"""A stop behind every axis' end."""
_AXES = Attribute("axes", "axes", None, "The axes that they are about; null is the first ones.")


def _limits(shape: Shape, attributes: Attributes) -> list[tuple[int, int, int, int]]:
    """Return axis, start, stop and stride of each axis that is sliced."""
    start, stop = attributes["start"], attributes["stop"]
    axes = attributes["axes"]
    chosen = rules.axes_of(range_of(len(start)) if axes is None else axes, len(shape), "axes")
    strides = attributes["strides"] or (1,) * len(chosen)
    for name, given in (("start", start), ("stop", stop), ("strides", strides)):
        if len(given) != len(chosen):
            raise rules.value_refused(name, list(given), f"{len(chosen)} numbers, one per axis")
    if 0 in strides:
        raise rules.value_refused("strides", list(strides), "numbers that are not 0")
    return list(zip(chosen, start, stop, strides, strict=True))


def range_of(count: int) -> tuple[int, ...]:
    """Return the axes up to a count."""
    return tuple(range(count))


def _slice_length(shape: Shape, axis: int, start: int, stop: int, stride: int) -> Dim:
    """Return how many elements a slice has, with numpy's rules."""
    length = shape[axis]
    if isinstance(length, int):
        return len(range(*_slice(start, stop, stride).indices(length)))
    # No length is above END, so places of -END and below are before every axis' begin.
    end: Dim = length if stop == END else stop if stop >= 0 or stop <= -END else length + stop
    begin: Dim = 0 if start <= -END else start if start >= 0 else length + start
    if isinstance(end, int) and end <= 0 < stride:
        return 0
    known = isinstance(end, int) and at_least(length, end) is not True
    if stride < 0 or known or (isinstance(begin, int) and isinstance(end, int) and begin > end):
        raise rules.shapes_refused(
            [shape], f"the elements {start} to {stop} by {stride} of {length} are not known"
        )
    many = end - begin + (stride - 1)
    return many // stride


def _slice(start: int, stop: int, stride: int) -> slice:
    """A reverse slice ends before the first element at a stop of -2**31 or lower."""
    if stride < 0 and stop <= -END:
        return slice(start, None, stride)
    return slice(start, None if stop == END and stride > 0 else stop, stride)


def _sliced(shape: Shape, attributes: Attributes) -> Shape:
    lengths = list(shape)
    for axis, start, stop, stride in _limits(shape, attributes):
        lengths[axis] = _slice_length(shape, axis, start, stop, stride)
    return tuple(lengths)


def _slice_array(a: mx.array, **attributes: Any) -> mx.array:
    parts = [slice(None)] * a.ndim
    for axis, start, stop, stride in _limits(a.shape, attributes):
        # mlx takes only what lies within.
        length = a.shape[axis]
        first, last, step = _slice(start, stop, stride).indices(length)
        if not range(first, last, step):
            parts[axis] = slice(0, 0)  # a reverse slice before the first element begins at -1
            continue
        step = min(max(step, -length - 1), length + 1)  # a larger one takes as many
        parts[axis] = slice(first, None if last < 0 else last, step)
    return a[tuple(parts)] if parts else a


def _window_axes(shape: Shape, starts: Spec, attributes: Attributes) -> tuple[int, ...]:
    """Check starts and return the axes that they are about."""
    require_indices("start_indices", starts)
    rules.require_rank("start_indices", starts, 0, 1)
    many = starts.shape[0] if starts.shape else 1
    given = attributes["axes"]
    if given is None:
        given = range_of(many) if isinstance(many, int) and many <= len(shape) else ()
    axes = rules.axes_of(given, len(shape), "axes")
    if not rules.equal(many, len(axes)):
        raise rules.shapes_refused(
            [starts.shape], f"start_indices must have a number for each of {len(axes)} axes"
        )
    return axes


def _dynamic_slice(given: Any, starts: Any, /, **attributes: Any) -> Spec:
    axes = _window_axes(given.shape, starts, attributes)
    size: Shape = attributes["slice_size"]
    if len(size) != len(given.shape):
        raise rules.value_refused(
            "slice_size", [str(each) for each in size], f"{len(given.shape)} dimensions"
        )
    for axis, (length, part) in enumerate(zip(given.shape, size, strict=True)):
        fits = rules.equal(length, part) or at_least(length, part) is not False
        if not fits or (axis not in axes and at_least(length, part) is False):
            raise rules.shapes_refused(
                [given.shape], f"axis {axis} has {length} elements, needs {part}"
            )
    return rules.spec(size, given.dtype)


def _starts(
    starts: mx.array, shape: tuple[int, ...], size: tuple[int, ...], axes: tuple[int, ...]
) -> mx.array:
    """Return starts so that a window lies within."""
    starts = starts.reshape(-1)
    parts = [
        safe(starts[at], shape[axis] - size[axis] + 1, negative=False).reshape(1)
        for at, axis in enumerate(axes)
    ]
    return mx.concatenate(parts)


def _start_checks(
    starts: mx.array, shape: tuple[int, ...], size: tuple[int, ...], attributes: Attributes
) -> list[Check]:
    if attributes["indices"] == "clamp":
        return []
    line = starts.reshape(-1)
    axes = _axes_given(attributes, line.size, len(shape))
    return [
        check
        for at, axis in enumerate(axes)
        for check in check_range(f"start_indices[{at}]", line[at], 0, shape[axis] - size[axis])
    ]


def _axes_given(attributes: Attributes, many: int, rank: int) -> tuple[int, ...]:
    given = attributes["axes"]
    return range_of(many) if given is None else tuple(axis % rank for axis in given)


def _dynamic_slice_arrays(array: Any, starts: Any, /, **attributes: Any) -> mx.array:
    size = tuple(attributes["slice_size"])
    # A vectorized program's array has an axis of rows before its own.
    rows, shape = array.shape[: array.ndim - len(size)], array.shape[array.ndim - len(size) :]
    axes = _axes_given(attributes, starts.size, len(size))
    if not axes:
        return array[(..., *(slice(0, length) for length in size))]
    if 0 in size:
        return mx.zeros((*rows, *size), dtype=array.dtype)
    where = _starts(starts, shape, size, axes)
    return mx.slice(array, where, [axis + len(rows) for axis in axes], (*rows, *size))


def _dynamic_slice_checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
    array, starts = arrays
    size = tuple(attributes["slice_size"])
    return _start_checks(starts, array.shape, size, attributes)


def _slice_update(given: Any, update: Any, starts: Any, /, **attributes: Any) -> Spec:
    _window_axes(given.shape, starts, attributes)
    if update.dtype != given.dtype:
        raise rules.value_refused("update", update.dtype, f"{given.dtype}, as a is")
    fits = len(update.shape) == len(given.shape) and all(
        at_least(length, part) is not False
        for length, part in zip(given.shape, update.shape, strict=True)
    )
    if not fits:
        raise rules.shapes_refused(
            [given.shape, update.shape], "the update must not be longer along any axis"
        )
    return given


def _slice_update_arrays(array: Any, update: Any, starts: Any, /, **attributes: Any) -> mx.array:
    if update.size == 0:
        return array
    axes = _axes_given(attributes, starts.size, array.ndim)
    if not axes:
        parts = tuple(slice(0, length) for length in update.shape)
        return mx.slice_update(array, update, mx.zeros((1,), mx.int32), (0,)) if parts else update
    where = _starts(starts, array.shape, update.shape, axes)
    return mx.slice_update(array, update, where, axes)


def _slice_update_checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
    array, update, starts = arrays
    return _start_checks(starts, array.shape, update.shape, attributes)


ROWS = (
    moving(
        "slice",
        _sliced,
        "The elements from start up to stop, without it, with numpy's rules: negative places count "
        "from the end, and what is behind an end is clamped.",
        "out[i] = a[start + i stride]",
        [
            example("[4,5]", start=[1, 0], stop=[3, -1]),
            example("[4,5]", start=[0], stop=[END], strides=[2], axes=[1]),
            example("[5]", start=[-1], stop=[-END], strides=[-2]),
            example("[4,5]", start=[3, 2], stop=[1, 2]),
            example("[]", start=[], stop=[]),
        ],
        _slice_array,
        attributes=(
            Attribute("start", "ints", REQUIRED, "Where it begins, for each axis."),
            Attribute("stop", "ints", REQUIRED, f"Where it ends; {END} is the end."),
            Attribute("strides", "ints", None, "From one to the next; null is 1."),
            _AXES,
        ),
        aliases="strided_slice",
    ),
    row(
        "dynamic_slice(∂a, start_indices)",
        _dynamic_slice,
        _dynamic_slice_arrays,
        "A window of an array that begins where another array says; the window lies within.",
        "out[i] = a[start + i]",
        [
            example("[4,5]", "int32[2] 0..2", slice_size=[2, 3]),
            example("[4,5]", "int32[1] 0..2", slice_size=[4, 3], axes=[1]),
            example("[4]", "uint8[] 0..3", slice_size=[1], axes=[0]),
        ],
        attributes=(
            Attribute("slice_size", "shape", REQUIRED, "The window's shape."),
            _AXES,
            INDICES,
        ),
        source="mlx's slice with an array of starts",
        stacks=(0,),
        checks=_dynamic_slice_checks,
    ),
    row(
        "slice_update(∂a, ∂update, start_indices)",
        _slice_update,
        _slice_update_arrays,
        "An array with another one in a window that begins where a third one says.",
        "out[start + i] = update[i], a elsewhere",
        [
            example("[4,5]", "[2,3]", "int32[2] 0..2"),
            example("[4,5]", "[4,1]", "int32[1] 0..4", axes=[1]),
            example("[4]", "[4]", "int32[1] 0..0"),
        ],
        aliases="dynamic_update_slice put_slice",
        attributes=(_AXES, INDICES),
        stacks=(),
        checks=_slice_update_checks,
    ),
)


MAX_OFFSET = 2**24
_K = Attribute(
    "k",
    "int",
    0,
    "The diagonal: above 0 over the main one, below 0 under it.",
    low=-MAX_OFFSET,
    high=MAX_OFFSET,
)
_OFFSET = Attribute("offset", "int", 0, _K.about, low=-MAX_OFFSET, high=MAX_OFFSET)
_PLANES = (
    Attribute("axis1", "axis", 0, "The axis of rows."),
    Attribute("axis2", "axis", 1, "The axis of columns."),
)


def _length(shape: Shape, rows: Dim, columns: Dim, offset: int) -> Dim:
    """Return how long a diagonal is."""
    if isinstance(rows, int) and isinstance(columns, int):
        return max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    if equal(rows, columns):
        return rows - abs(offset)
    raise shapes_refused([shape], f"{rows} and {columns} must be numbers, or equal")


def _diag(shape: Shape, attributes: Attributes) -> Shape:
    k = attributes["k"]
    if len(shape) == 1:
        return (shape[0] + abs(k), shape[0] + abs(k))
    if len(shape) == 2:
        return (_length(shape, shape[0], shape[1], k),)
    raise shapes_refused([shape], "it must have 1 or 2 dimensions")


def _plane(shape: Shape, attributes: Attributes) -> tuple[Shape, Dim]:
    """Return the axes beside a plane, and the length of its diagonal."""
    if len(shape) < 2:
        raise shapes_refused([shape], "it must have 2 dimensions or more")
    pair = (attributes["axis1"], attributes["axis2"])
    rows, columns = axes_of(pair, len(shape), "axis1 and axis2")
    rest = tuple(length for at, length in enumerate(shape) if at not in (rows, columns))
    return rest, _length(shape, shape[rows], shape[columns], attributes["offset"])


def _diagonal(shape: Shape, attributes: Attributes) -> Shape:
    rest, length = _plane(shape, attributes)
    return (*rest, length)


def _diagonal_array(a: mx.array, offset: int, axis1: int, axis2: int) -> mx.array:
    """Take the diagonal, by indices that lie within."""
    a = mx.moveaxis(mx.moveaxis(a, axis1 % a.ndim, 0), _behind(axis1, axis2, a.ndim), 1)
    rows, columns = a.shape[:2]
    first, second = max(-offset, 0), max(offset, 0)
    length = max(min(rows - first, columns - second), 0)
    if length == 0:
        return mx.zeros((*a.shape[2:], 0), dtype=a.dtype)
    places = mx.arange(length)
    flat = a.reshape(rows * columns, *a.shape[2:])
    line = taken(flat, (places + first) * columns + places + second, 0)
    return mx.moveaxis(line, 0, -1)


def _behind(axis1: int, axis2: int, rank: int) -> int:
    """Return where the second axis is once the first has moved to the front."""
    axis1, axis2 = axis1 % rank, axis2 % rank
    return axis2 + 1 if axis2 < axis1 else axis2


def _diag_array(a: mx.array, k: int) -> mx.array:
    if a.ndim == 2:
        return _diagonal_array(a, k, 0, 1)
    if a.size == 0:
        return mx.zeros((abs(k), abs(k)), dtype=a.dtype)
    # As in eye, no scatter.
    places = mx.arange(a.size + abs(k))
    is_on_it = places[:, None] + k == places
    line = mx.concatenate([a, mx.zeros((abs(k),), dtype=a.dtype)])
    return mx.where(is_on_it, line[:, None] if k > 0 else line, mx.zeros((), dtype=a.dtype))


def _triangle(name: str, function: Callable[..., mx.array], where: str, kept: str) -> Operation:
    def rule(shape: Shape, attributes: Attributes) -> Shape:
        if len(shape) < 2:
            raise shapes_refused([shape], "it must have 2 dimensions or more")
        return shape

    return moving(
        name,
        rule,
        f"Matrices with zeros {where} a diagonal.",
        f"out[i, j] = x[i, j] if j - i {kept} k, else 0",
        [example("[3,3]"), example("[2,3,4]", k=1), example("[3,2]", k=-1)],
        lambda x, k: function(x, k),
        attributes=(_K,),
    )


DIAGONALS = (
    moving(
        "diag",
        _diag,
        "The matrix with a vector on a diagonal, or the diagonal of a matrix.",
        "out[i, i + k] = a[i], or out[i] = a[i, i + k]",
        [
            example("[3]"),
            example("[3]", k=-1),
            example("[3,4]", k=1),
            example("[2,2]", k=5),
            example("[0]", k=2),
        ],
        _diag_array,
        attributes=(_K,),
    ),
    moving(
        "diagonal",
        _diagonal,
        "The diagonals of matrices, as the last axis.",
        "out[…, i] = a[i, i + offset, …]",
        [
            example("[3,4]"),
            example("[2,3,4]", axis1=2, axis2=-2, offset=-1),
            example("[2,3]", offset=3),
        ],
        _diagonal_array,
        attributes=(_OFFSET, *_PLANES),
    ),
    _triangle("tril", mx.tril, "above", "<="),
    _triangle("triu", mx.triu, "below", ">="),
    moving(
        "trace",
        lambda shape, attributes: _plane(shape, attributes)[0],
        "The sum of a diagonal, in the dtypes of sum.",
        "out = sum of a[i, i + offset]",
        [example("[3,3]"), example("[2,3,4]", axis1=1, axis2=2, offset=1), example("[0,3]")],
        lambda a, **attributes: mx.sum(_diagonal_array(a, **attributes), axis=-1),
        result=summed,
        attributes=(_OFFSET, *_PLANES),
    ),
)
