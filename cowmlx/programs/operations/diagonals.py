"""Diagonals and triangles of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape
from cowmlx.programs.operations.indices import taken
from cowmlx.programs.operations.making import example, moving, row
from cowmlx.programs.operations.reductions import summed
from cowmlx.programs.operations.row import Attribute, Attributes, Operation, Spec
from cowmlx.programs.operations.rules import axes_of, equal, shapes_refused, spec

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
    rest = tuple(each for at, each in enumerate(shape) if at not in (rows, columns))
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
    return mx.diag(a, k)


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


def _trace(given: Any, /, **attributes: Any) -> Spec:
    rest, _ = _plane(given.shape, attributes)
    return spec(rest, summed(given.dtype))


def _trace_array(*arrays: Any, **attributes: Any) -> mx.array:
    return mx.sum(_diagonal_array(*arrays, **attributes), axis=-1)


ROWS = (
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
    row(
        "trace",
        ("a",),
        _trace,
        _trace_array,
        "The sum of a diagonal, in the dtypes of sum.",
        "out = sum of a[i, i + offset]",
        [example("[3,3]"), example("[2,3,4]", axis1=1, axis2=2, offset=1), example("[0,3]")],
        attributes=(_OFFSET, *_PLANES),
        differentiable=("a",),
    ),
)
