"""Convolutions by mlx where its results and gradients are right, else as products of windows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from cowmlx.accelerate.operations import convolution
from cowmlx.programs.operations.indices import taken

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Steps:
    """The steps of a convolution; each tuple has a number for each spatial axis.

    Args:
        stride: from one window to the next.
        pads: zeros before and behind; below 0 elements are cut off.
        kernel_dilation: between the elements of a window.
        input_dilation: between the elements of the input.
        groups: of channels.
        flip: whether windows are reversed.
    """

    stride: Numbers
    pads: list[tuple[int, int]]
    kernel_dilation: Numbers
    input_dilation: Numbers
    groups: int = 1
    flip: bool = False


def convolve(given: mx.array, weight: mx.array, steps: Steps, gathers: bool = False) -> mx.array:
    """Return a convolution, which can be differentiated any number of times.

    mlx's own gradients have wrong shapes or values where the two ends of an axis are padded
    differently, where windows do not reach its end, and where two of stride and dilations are
    above 1. So mlx gets none of these.

    Args:
        given: (N, spatial axes, C_in), or (rows, N, spatial axes, C_in).
        weight: (C_out, kernel axes, C_in / groups), of the same dtype.
        steps: its steps.
        gathers: whether windows are gathered in any case.

    Returns:
        (N, spatial axes, C_out), or (rows, N, spatial axes, C_out).
    """
    axes = len(steps.stride)
    if given.ndim > axes + 2:
        result = convolve(given.flatten(0, 1), weight, steps, gathers)
        return result.reshape(*given.shape[:2], *result.shape[1:])
    kind = "float64" if given.dtype == mx.float64 else "float32"
    # mlx ends the process for the gradient of a convolution of nothing.
    unknown = given.size == 0 or (axes == 3 and steps.groups > 1)
    if gathers or unknown or by_windows(kind, steps):
        return _convolve_windows(given, weight, steps)
    stride, spread, dilation = steps.stride, steps.input_dilation, steps.kernel_dilation
    options: dict[str, Any] = {
        "stride": stride,
        "kernel_dilation": dilation,
        "input_dilation": spread,
        "groups": steps.groups,
        "flip": steps.flip,
    }
    if max(spread) == 1:
        made = convolution(given, weight, steps.pads, **options)
        if made is not None:
            return made
    padding = []
    ends = []
    for at, (low, high) in enumerate(steps.pads):
        length = (given.shape[1 + at] - 1) * spread[at] + 1
        reach = (weight.shape[1 + at] - 1) * dilation[at]
        high -= (length + low + high - reach - 1) % stride[at]
        if spread[at] > 1:
            # More than is asked for, where an end or the weight's gradient needs it; cut below.
            both = min(max(low, high, reach + 1 - length, 0), reach)
        elif low == high and 0 <= low <= reach:
            both = low
        else:
            given = _padded(given, 1 + at, (low, high))
            low = high = both = 0
        padding.append(both)
        ends.append((low - both, high - both))
    made = convolution(given, weight, [(both, both) for both in padding], **options)
    if made is None:
        made = mx.conv_general(given, weight, padding=padding, **options)
    for at, end in enumerate(ends):
        made = _padded(made, 1 + at, end)
    return made


def by_windows(dtype: str, steps: Steps) -> bool:
    """Whether windows are gathered: mlx has no float64, and wrong gradients of mixed steps."""
    of_axes = zip(steps.stride, steps.kernel_dilation, steps.input_dilation, strict=True)
    return dtype == "float64" or any(sum(axi > 1 for axi in axis) > 1 for axis in of_axes)


def _convolve_windows(given: mx.array, weight: mx.array, steps: Steps) -> mx.array:
    """Return a convolution as a product of matrices, for what :func:`convolve` takes."""
    axes, groups = len(steps.stride), steps.groups
    kernel = weight.shape[1:-1]
    if steps.flip:
        weight = weight[(slice(None), *[slice(None, None, -1)] * axes)]
    for at in range(axes):
        given = _spread(given, 1 + at, steps.input_dilation[at])
        given = _padded(given, 1 + at, steps.pads[at])
    for at in range(axes):
        # Each axis done so far has become two: the window's place, and the place in it.
        axis = 1 + 2 * at
        dilation, stride = steps.kernel_dilation[at], steps.stride[at]
        reach = (kernel[at] - 1) * dilation + 1
        many = (given.shape[axis] - reach) // stride + 1
        inside = mx.arange(kernel[at]) * dilation
        given = taken(given, mx.arange(many)[:, None] * stride + inside, axis)
    outs = tuple(given.shape[1 + 2 * at] for at in range(axes))
    order = [0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2), 2 * axes + 1]
    given = given.transpose(order)
    channels = weight.shape[-1]
    positions = given.shape[0] * math.prod(outs)
    lines = given.reshape(positions, math.prod(kernel), groups, channels)
    lines = lines.transpose(2, 0, 1, 3).reshape(groups, positions, math.prod(kernel) * channels)
    outputs = weight.shape[0] // groups
    columns = weight.reshape(groups, outputs, math.prod(kernel) * channels).swapaxes(1, 2)
    result = (lines @ columns).swapaxes(0, 1)
    return result.reshape(given.shape[0], *outs, weight.shape[0])


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
    """Return an array with zeros at both ends of an axis.

    Below 0 elements are cut off, of the other end's zeros, too.
    """
    low, high = pad
    length = given.shape[axis]
    if low < -length:
        low, high = -length, low + high + length
    if high < -length:
        low, high = low + high + length, -length
    if low < 0 or high < 0:
        given = _cut(given, axis, max(-low, 0), length - max(-high, 0))
    width = [(0, 0)] * given.ndim
    width[axis] = (max(low, 0), max(high, 0))
    return mx.pad(given, width) if low > 0 or high > 0 else given


def _cut(given: mx.array, axis: int, start: int, stop: int) -> mx.array:
    return given[(*[slice(None)] * axis, slice(start, stop))]
