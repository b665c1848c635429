"""Inputs of branches that are computed for rows which do not take them."""

from __future__ import annotations

from typing import Any

import mlx.core as mx


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
        each.shape[axis] for each, axis in zip(arrays, axes, strict=True) if axis is not None
    )
    array, holds = (
        mx.broadcast_to(each, (count, *each.shape)) if axis is None else mx.moveaxis(each, axis, 0)
        for each, axis in zip(arrays, axes, strict=True)
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
    found: mx.array = function(array, holds)
    return found
