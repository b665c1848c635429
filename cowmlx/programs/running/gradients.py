"""Functions of control flow with their own gradients, which replace those of mlx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx


@mx.custom_function
def _unstacked(array: mx.array) -> list[mx.array]:
    return [part.squeeze(0) for part in mx.split(array, array.shape[0])]


@_unstacked.vjp
def _unstacked_gradient(
    array: mx.array, cotangents: Sequence[mx.array], outputs: Sequence[mx.array]
) -> mx.array:
    return mx.stack(list(cotangents))


@_unstacked.vmap
def _unstacked_rows(array: mx.array, axis: int) -> tuple[list[mx.array], list[int]]:
    found = unstacked(mx.moveaxis(array, axis, 1))
    return found, [0] * len(found)


def unstacked(array: mx.array) -> list[mx.array]:
    """Return the elements of an array along axis 0, which must not be empty.

    The gradients of all elements are stacked. mlx allocates one as large as the array for each.
    """
    function: Any = _unstacked
    found: list[mx.array] = function(array)
    return found


@mx.custom_function
def _gated(array: mx.array, holds: mx.array) -> mx.array:
    return array


@_gated.vjp
def _gated_gradient(
    arrays: tuple[mx.array, mx.array], cotangent: mx.array, out: mx.array
) -> tuple[mx.array, mx.array]:
    _, holds = arrays
    rows = holds.reshape(*holds.shape, *[1] * (cotangent.ndim - holds.ndim))
    return mx.where(rows, cotangent, mx.zeros_like(cotangent)), mx.zeros_like(holds)


@_gated.vmap
def _gated_rows(
    arrays: tuple[mx.array, mx.array], axes: tuple[int | None, int | None]
) -> tuple[mx.array, int]:
    count = next(
        operand.shape[axis] for operand, axis in zip(arrays, axes, strict=True) if axis is not None
    )
    array, holds = (
        mx.broadcast_to(operand, (count, *operand.shape))
        if axis is None
        else mx.moveaxis(operand, axis, 0)
        for operand, axis in zip(arrays, axes, strict=True)
    )
    return gated(array, holds), 0


def gated(array: mx.array, holds: mx.array) -> mx.array:
    """Return an array to which a gradient comes back only where a branch is taken.

    Elsewhere the branch's own gradient may be infinite or nan, which times 0 is nan, also in mlx's
    gradient of ``where``.

    Args:
        array: floats, of any shape.
        holds: a bool (); of rows one for each.
    """
    function: Any = _gated
    result: mx.array = function(array, holds)
    return result
