"""Sums and means of many numbers, whose rounding errors do not grow with the count.

mlx adds one number after the other on a CPU: a sum of 4,194,304 equal float32 was 4 % off. Here the
parts of a long axis are added first. GPUs add in parts themselves.
"""

from __future__ import annotations

import math
from typing import Any, cast

import mlx.core as mx

from cowmlx.programs.operations.half import HALF, widened
from cowmlx.programs.operations.rules import axes_of

Axis = int | tuple[int, ...] | None
LONG = 1 << 14
"""Numbers whose sum takes no parts: with few, each step costs more than it saves."""
LONG_HALF = 1 << 16
"""Likewise of 16-bit floats, which mlx adds in float32."""
SHORT = 4096
"""Numbers of a part, or sums of parts, that are added one after the other."""
PART = 128
"""Numbers of a part."""


def total(a: mx.array, axis: Axis = None, keepdims: bool = False) -> mx.array:
    """Return the sum along axes."""
    axes = axes_of(axis, a.ndim)
    is_half = a.dtype in HALF
    if not _is_long(a, axes, LONG_HALF if is_half else LONG):
        return mx.sum(a, axis=axis, keepdims=keepdims)
    found = _in_parts(widened(a), axes, keepdims)
    return found.astype(a.dtype)


def mean(a: mx.array, axis: Axis = None, keepdims: bool = False) -> mx.array:
    """Return the mean along axes; of float16 without an overflow of the sum."""
    if not mx.issubdtype(a.dtype, mx.inexact):
        a = a.astype(mx.float32)
    if a.dtype == mx.float16:
        return mean(a.astype(mx.float32), axis, keepdims).astype(mx.float16)
    axes = axes_of(axis, a.ndim)
    if not _is_long(a, axes, LONG):
        return mx.mean(a, axis=axis, keepdims=keepdims)
    count = math.prod(a.shape[each] for each in axes)
    return (_in_parts(widened(a), axes, keepdims) * (1 / count)).astype(a.dtype)


def variance(a: mx.array, axis: Axis = None, keepdims: bool = False, ddof: int = 0) -> mx.array:
    """Return the variance along axes."""
    axes = axes_of(axis, a.ndim)
    if not mx.issubdtype(a.dtype, mx.inexact):
        a = a.astype(mx.float32)
    if a.dtype == mx.float16:
        return variance(a.astype(mx.float32), axis, keepdims, ddof).astype(mx.float16)
    if not _is_long(a, axes, LONG):
        return mx.var(a, axis=axis, keepdims=keepdims, ddof=ddof)
    count = math.prod(a.shape[each] for each in axes)
    squares = mx.square(a - mean(a, axes, True))
    return mean(squares, axes, keepdims) * (count / (count - ddof) if count > ddof else math.inf)


def deviation(a: mx.array, axis: Axis = None, keepdims: bool = False, ddof: int = 0) -> mx.array:
    """Return the standard deviation along axes."""
    if a.dtype == mx.float16:
        return deviation(a.astype(mx.float32), axis, keepdims, ddof).astype(mx.float16)
    return mx.sqrt(variance(a, axis, keepdims, ddof))


def _is_long(a: mx.array, axes: tuple[int, ...], limit: int) -> bool:
    """Return whether so many are added that parts are better; integers and float64 are exact."""
    if a.size <= limit or not mx.issubdtype(a.dtype, mx.inexact) or a.dtype == mx.float64:
        return False
    on_cpu = mx.default_device().type == mx.cpu
    return on_cpu and math.prod(a.shape[axis] for axis in axes) > limit


def _in_parts(a: mx.array, axes: tuple[int, ...], keepdims: bool) -> mx.array:
    """Return the sum along axes with the gradient of a plain one."""
    from_end = tuple(axis - a.ndim for axis in axes)
    custom = cast(Any, mx.custom_function(lambda a: _added(a, from_end)))

    @custom.vjp  # type: ignore[untyped-decorator]
    def gradient(a: mx.array, cotangent: mx.array, out: mx.array) -> mx.array:
        return mx.broadcast_to(cotangent, a.shape)

    @custom.vmap  # type: ignore[untyped-decorator]
    def rows(a: mx.array, axis: int) -> tuple[mx.array, int]:
        return custom(mx.moveaxis(a, axis, 0)), 0

    found: mx.array = custom(a)
    return found if keepdims else mx.squeeze(found, axis=axes)


def _added(a: mx.array, axes: tuple[int, ...]) -> mx.array:
    """Return the sum along axes, which are counted from the end and stay with length 1."""
    lengths = {axis: a.shape[axis] for axis in axes}
    count = math.prod(lengths.values())
    if count <= SHORT:
        return mx.sum(a, axis=axes, keepdims=True)
    longest = max(axes, key=lengths.__getitem__)
    length = lengths[longest]
    if count // length >= PART:
        # The first long axis is fast in row-major arrays, and in transposed ones.
        long = [axis for axis in axes if lengths[axis] >= PART]
        first = (min(long),) if long else tuple(axis for axis in axes if axis != longest)
        then = tuple(axis for axis in axes if axis not in first)
        return _added(_added(a, first), then)
    others = tuple(axis for axis in axes if axis != longest)
    if others and max(others) < longest and length <= SHORT:  # rows are added, which is fast
        return _added(_added(a, others), (longest,))
    part = PART // (count // length)
    whole = length // part * part
    ahead = (slice(None),) * (longest % a.ndim)
    rest = a[(*ahead, slice(whole, None))]
    # The axis of parts takes the longest axis' place, with those of the parts behind it.
    parts = mx.unflatten(a[(*ahead, slice(0, whole))], longest, (length // part, part))
    place = longest % a.ndim + 1
    inner = (place, *(axis % a.ndim + (axis % a.ndim >= place) for axis in others))
    found = mx.squeeze(mx.sum(parts, axis=inner, keepdims=True), axis=place)
    if whole < length:
        found = mx.concatenate([found, mx.sum(rest, axis=axes, keepdims=True)], axis=longest)
    return _added(found, (longest,))
