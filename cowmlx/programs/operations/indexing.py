"""Elements at indices, which are checked or clamped: mlx would read foreign memory."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape, count
from cowmlx.programs.operations.indices import (
    INDICES,
    Check,
    checks_of,
    require_indices,
    safe,
)
from cowmlx.programs.operations.making import example, row
from cowmlx.programs.operations.row import Attribute, Attributes, Spec
from cowmlx.programs.operations.rules import axis_of, shapes_refused, spec


def require_some(operation: str, shape: Shape, length: Dim, indices: Shape) -> None:
    """Check that there is something to point at, where it is known.

    Raises:
        OperationError: the axis is empty, and indices are not.
    """
    if length == 0 and count(indices) != 0:
        raise shapes_refused(
            operation, [shape, indices], "no index is within an empty axis, must have elements"
        )


def _take(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    given, indices = inputs
    require_indices("take", "indices", indices)
    axis = attributes["axis"]
    if axis is None:
        require_some("take", given.shape, count(given.shape), indices.shape)
        return [spec("take", indices.shape, given.dtype)]
    axis = axis_of("take", axis, len(given.shape))
    require_some("take", given.shape, given.shape[axis], indices.shape)
    shape = given.shape[:axis] + indices.shape + given.shape[axis + 1 :]
    return [spec("take", shape, given.dtype)]


def _take_length(array: mx.array, attributes: Attributes) -> int:
    axis = attributes["axis"]
    return array.size if axis is None else array.shape[axis]


def _take_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    array, indices = arrays
    length = _take_length(array, attributes)
    return [mx.take(array, safe(indices, max(length, 1)), axis=attributes["axis"])]


def _take_checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
    array, indices = arrays
    return checks_of("take", "indices", indices, _take_length(array, attributes), attributes)


ROWS = (
    row(
        "take",
        ("a", "indices"),
        _take,
        _take_arrays,
        "The elements at indices along an axis; negative ones count from the end.",
        "out[…, i, …] = a[…, indices[i], …]",
        [
            example("float32[4,3]", "int32[2] 0..3", axis=0),
            example("float32[4,3]", "int32[2,2] -3..2", axis=-1),
            example("float32[4,3]", "uint8[] 0..3", axis=0),
            example("float32[4,3]", "int64[5] -12..11"),
            example("float32[0,3]", "int32[0] 0..0", axis=0),
        ],
        aliases=("gather", "index_select"),
        attributes=(
            Attribute("axis", "axis", None, "The axis; null takes from the flattened array."),
            INDICES,
        ),
        differentiable=("a",),
        checks=_take_checks,
    ),
)
