"""Convolutions as products of windows: for dtypes and groups that mlx's own does not take."""

from __future__ import annotations

import math

import mlx.core as mx

from cowmlx.programs.operations.indices import taken

Numbers = tuple[int, ...]


def convolve_windows(
    given: mx.array,
    weight: mx.array,
    stride: Numbers,
    pads: list[tuple[int, int]],
    kernel_dilation: Numbers,
    input_dilation: Numbers,
    groups: int = 1,
    flip: bool = False,
) -> mx.array:
    """Return a convolution.

    Args:
        given: (N, spatial axes, C_in).
        weight: (C_out, kernel axes, C_in / groups), of the same dtype.
        stride: for each spatial axis, as all that follow.
        pads: zeros before and behind; below 0 elements are cut off.
        kernel_dilation: between the elements of a window.
        input_dilation: between the elements of the input.
        groups: of channels.
        flip: whether windows are reversed.

    Returns:
        (N, spatial axes, C_out).
    """
    axes = len(stride)
    kernel = weight.shape[1:-1]
    if flip:
        weight = weight[(slice(None), *[slice(None, None, -1)] * axes)]
    for at in range(axes):
        given = _spread(given, 1 + at, input_dilation[at])
        given = _padded(given, 1 + at, pads[at])
    for at in range(axes):
        # Each axis done so far has become two: the window's place, and the place in it.
        axis = 1 + 2 * at
        reach = (kernel[at] - 1) * kernel_dilation[at] + 1
        many = (given.shape[axis] - reach) // stride[at] + 1
        inside = mx.arange(kernel[at]) * kernel_dilation[at]
        given = taken(given, mx.arange(many)[:, None] * stride[at] + inside, axis)
    outs = tuple(given.shape[1 + 2 * at] for at in range(axes))
    order = [0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2), 2 * axes + 1]
    given = given.transpose(order)
    channels = weight.shape[-1]
    positions = given.shape[0] * math.prod(outs)
    lines = given.reshape(positions, math.prod(kernel), groups, channels)
    lines = lines.transpose(2, 0, 1, 3).reshape(groups, positions, math.prod(kernel) * channels)
    outputs = weight.shape[0] // groups
    columns = weight.reshape(groups, outputs, math.prod(kernel) * channels).swapaxes(1, 2)
    found = (lines @ columns).swapaxes(0, 1)
    return found.reshape(given.shape[0], *outs, weight.shape[0])


def _spread(given: mx.array, axis: int, dilation: int) -> mx.array:
    """Put zeros between the elements of an axis."""
    if dilation == 1:
        return given
    length = given.shape[axis]
    wide = mx.expand_dims(given, axis + 1)
    gap = [1 if at == axis + 1 else each for at, each in enumerate(wide.shape)]
    gap[axis + 1] = dilation - 1
    wide = mx.concatenate([wide, mx.zeros(gap, dtype=given.dtype)], axis=axis + 1)
    shape = list(given.shape)
    shape[axis] = length * dilation
    return _cut(wide.reshape(shape), axis, 0, (length - 1) * dilation + 1)


def _padded(given: mx.array, axis: int, pad: tuple[int, int]) -> mx.array:
    low, high = pad
    given = _cut(given, axis, max(-low, 0), given.shape[axis] - max(-high, 0))
    width = [(0, 0)] * given.ndim
    width[axis] = (max(low, 0), max(high, 0))
    return mx.pad(given, width) if low > 0 or high > 0 else given


def _cut(given: mx.array, axis: int, start: int, stop: int) -> mx.array:
    return given[(*[slice(None)] * axis, slice(start, stop))]
