"""Pooling: through the table's where it has it, else window by window."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product as tuples
from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.bounds import Steps
from cowmlx.programs.importing.onnx_nodes import OnnxNode, converts
from cowmlx.programs.importing.operators.elementwise import widened
from cowmlx.programs.importing.operators.products import channels_first, channels_last, pads_of
from cowmlx.programs.importing.operators.reductions import reduced
from cowmlx.programs.importing.operators.shaping import padded
from cowmlx.programs.importing.values import Value

MAX_WINDOW = 4096
"""Elements of a window that is taken apart."""


@converts("GlobalAveragePool", "GlobalMaxPool")
def _global(node: OnnxNode) -> Value:
    value = node.input()
    kind = "Mean" if node.op == "GlobalAveragePool" else "Max"
    return reduced(node, kind, value, list(range(2, value.rank)), True)


@converts("GlobalLpPool")
def _global_lp(node: OnnxNode) -> Value:
    value = node.input()
    p = node.attr("p", 2)
    size = node.apply("abs", widened(node, value))
    powered = node.apply("power", size, node.number(p, size))
    total = node.apply("sum", powered, axis=list(range(2, value.rank)), keepdims=True)
    return node.scope.cast(node.apply("power", total, node.number(1 / p, total)), value.dtype)


class Windows:
    """The windows of a pooling.

    Args:
        node: has the attributes.
        value: (N, C, …).
    """

    def __init__(self, node: OnnxNode, value: Value) -> None:
        self.node = node
        self.axes = value.rank - 2
        if self.axes < 1:
            raise BadFormat(f"pools {value.spec}, which has no spatial axes")
        self.kernel = list(node.needed("kernel_shape"))
        if len(self.kernel) != self.axes or min(self.kernel) < 1:
            raise BadFormat(f"has the kernel_shape {self.kernel[:8]} for {value.spec}")
        self.strides = node.ints("strides", self.axes, 1)
        self.dilations = node.ints("dilations", self.axes, 1)
        if min(*self.strides, *self.dilations) < 1:
            raise BadFormat(f"has the strides {self.strides} and dilations {self.dilations}")
        reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        self.reach = reach
        self.pads = pads_of(node, list(value.shape[2:]), reach, self.strides)
        self.more = [0] * self.axes
        if node.attr("ceil_mode", 0):
            self.more = [self._more(side, at) for at, side in enumerate(value.shape[2:])]

    def _more(self, side: Any, at: int) -> int:
        """Return how much longer an axis must be for a last window that it has in part."""
        if not isinstance(side, int):
            raise Unsupported(f"with ceil_mode, its axis of {side} must be known before a run")
        low, high = self.pads[at]
        stride = self.strides[at]
        room = side + low + high - self.reach[at]
        count = -(-room // stride) + 1
        if (count - 1) * stride >= side + low:
            count -= 1
        return max((count - 1) * stride + self.reach[at] - (side + low + high), 0)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All padding."""
        return [(low, high + m) for (low, high), m in zip(self.pads, self.more, strict=True)]

    @property
    def is_plain(self) -> bool:
        """Whether the table's pooling has such windows."""
        return self.axes <= 3 and all(d == 1 for d in self.dilations)

    def parts(self, image: Value) -> Iterator[tuple[tuple[int, ...], Value]]:
        """Return for each element of a window those of all windows, of a padded image."""
        if math.prod(self.kernel) > MAX_WINDOW:
            raise Unsupported(f"its kernel_shape {self.kernel} is too large")
        sides: list[Any] = list(image.shape[1:-1])
        for place in tuples(*map(range, self.kernel)):
            starts = [k * d for k, d in zip(place, self.dilations, strict=True)]
            stops = []
            for at, start in enumerate(starts):
                if not isinstance(sides[at], int):
                    raise Unsupported(f"its axis of {sides[at]} must be known before a run")
                count = (sides[at] - self.reach[at]) // self.strides[at] + 1
                stops.append(start + (count - 1) * self.strides[at] + 1)
            part = self.node.apply(
                "slice",
                image,
                start=starts,
                stop=stops,
                strides=self.strides,
                axes=list(range(1, self.axes + 1)),
            )
            yield place, part

    def padded(self, image: Value, number: float) -> Value:
        """Return an image with all padding."""
        pairs = [(0, 0), *self.pairs, (0, 0)]
        return padded(self.node, image, pairs, filling=self.node.number(number, image))


def _least(dtype: str) -> Any:
    return -np.inf if "float" in dtype else np.iinfo(dtype).min


@converts("MaxPool")
def _max_pool(node: OnnxNode) -> Steps[list[Value]]:
    value = node.input()
    windows = Windows(node, value)
    image = channels_last(node, value)
    if node.has_output(1):
        return (yield from _with_places(node, value, windows, image))
    if windows.is_plain and value.dtype.startswith("float"):
        pads = windows.pairs
        same = all(
            low == high and 2 * low <= k
            for (low, high), k in zip(pads, windows.kernel, strict=True)
        )
        whole = image if same else windows.padded(image, _least(value.dtype))
        padding = [low for low, _ in pads] if same else [0] * windows.axes
        found = node.apply(
            f"max_pool{windows.axes}d",
            whole,
            kernel_size=windows.kernel,
            stride=windows.strides,
            padding=padding,
        )
        return [channels_first(node, found)]
    best: Value | None = None
    for _, part in windows.parts(windows.padded(image, _least(value.dtype))):
        yield from node.rest()
        best = part if best is None else node.apply("maximum", best, part)
    assert best is not None
    return [channels_first(node, best)]


def _with_places(
    node: OnnxNode, value: Value, windows: Windows, image: Value
) -> Steps[list[Value]]:
    """Return the greatest elements, and their places in the flattened input, in steps."""
    sides: list[Any] = list(value.shape)
    if not all(isinstance(side, int) for side in sides):
        raise Unsupported("its indices need an input of known shape")
    whole = windows.padded(image, _least(value.dtype))
    spatial = list(range(2, value.rank))
    if node.attr("storage_order", 0):
        spatial = spatial[::-1]
    axes = [0, 1, *spatial]  # which are their own inverse
    numbers = node.apply("iota", shape=[math.prod(sides)], dtype="int64")
    numbers = node.scope.reshape(numbers, [sides[axis] for axis in axes])
    numbers = channels_last(node, node.scope.transpose(numbers, axes))
    places = windows.padded(numbers, -1)
    best = index = None
    for (_, part), (_, place) in zip(windows.parts(whole), windows.parts(places), strict=True):
        yield from node.rest()
        if best is None or index is None:
            best, index = part, place
            continue
        outside = node.apply("less", index, node.number(0, index))
        inside = node.apply("greater_equal", place, node.number(0, place))
        better = node.apply(
            "logical_or",
            node.apply("greater", part, best),
            node.apply("logical_and", outside, inside),
        )
        index = node.apply("where", better, place, index)
        best = node.apply("maximum", best, part)
    assert best is not None and index is not None
    return [channels_first(node, best), channels_first(node, index)]


@converts("LpPool")
def _lp_pool(node: OnnxNode) -> Steps[Value]:
    value, p = node.input(), node.attr("p", 2)
    windows = Windows(node, value)
    image = node.apply("abs", widened(node, channels_last(node, value)))
    powered = node.apply("power", image, node.number(p, image))
    mean = yield from _averaged(node, windows, windows.padded(powered, 0))
    total = node.apply("multiply", mean, node.number(math.prod(windows.kernel), mean))
    root = node.apply("power", total, node.number(1 / p, total))
    return channels_first(node, node.scope.cast(root, value.dtype))


@converts("AveragePool")
def _average_pool(node: OnnxNode) -> Steps[Value]:
    value = node.input()
    windows = Windows(node, value)
    image = windows.padded(channels_last(node, value), 0)
    found = yield from _averaged(node, windows, image)
    if not any(low or high for low, high in windows.pairs):
        return channels_first(node, found)
    spatial: list[Any] = list(value.shape[2:])
    if not all(isinstance(side, int) for side in spatial):
        raise Unsupported(f"with padding, its axes of {spatial} must be known before a run")
    sides: Any = found.shape[1:-1]
    node.bounded(sides)
    counts = np.ones(())
    for at, side in enumerate(sides):
        counts = counts[..., None] * _counts(node, windows, at, spatial[at], side)
    factors = math.prod(windows.kernel) / np.maximum(counts, 1)[None, ..., None]
    if (factors != 1).any():
        factor = node.scope.constant(factors, found.dtype)
        found = node.apply("multiply", found, factor)
    return channels_first(node, found)


def _counts(node: OnnxNode, windows: Windows, at: int, side: int, number: int) -> Any:
    """Return how many elements each of so many windows counts along an axis of some length."""
    kernel, dilation = windows.kernel[at], windows.dilations[at]
    low, high = windows.pads[at]
    first, end = (0, low + side + high) if node.attr("count_include_pad", 0) else (low, low + side)
    starts = np.arange(number) * windows.strides[at]
    before = [np.clip(-((starts - place) // dilation), 0, kernel) for place in (first, end)]
    return before[1] - before[0]


def _averaged(node: OnnxNode, windows: Windows, image: Value) -> Steps[Value]:
    """Return the means of all windows of a padded image, in steps."""
    if windows.is_plain:
        return node.apply(
            f"avg_pool{windows.axes}d", image, kernel_size=windows.kernel, stride=windows.strides
        )
    total: Value | None = None
    for _, part in windows.parts(widened(node, image)):
        yield from node.rest()
        total = part if total is None else node.apply("add", total, part)
    assert total is not None
    mean = node.apply("divide", total, node.number(math.prod(windows.kernel), total))
    return node.scope.cast(mean, image.dtype)


@converts("MaxUnpool")
def _unpool(node: OnnxNode) -> Value:
    value, places = node.input(0), node.input(1)
    axes = value.rank - 2
    kernel = node.ints("kernel_shape", axes, 1)
    strides, pads = node.ints("strides", axes, 1), node.ints("pads", 2 * axes, 0)
    sides: list[Any] = [*value.shape]
    own = list(sides[:2])
    for at in range(axes):
        own.append((sides[2 + at] - 1) * strides[at] + kernel[at] - pads[at] - pads[at + axes])
    wanted = node.numbers(2, "output_shape") if node.optional(2) is not None else own
    if not all(isinstance(side, int) for side in (*sides, *wanted)):
        raise Unsupported("its shape is not known before a run")
    # Places count in the shape without output_shape.
    total = math.prod(own)
    zeros = node.scope.constant(np.zeros(()), value.dtype)
    flat = node.apply("broadcast_to", zeros, shape=[total])
    length = math.prod(sides)
    found = node.apply(
        "scatter",
        flat,
        node.scope.reshape(places, [length]),
        node.scope.reshape(value, [length]),
    )
    whole = node.scope.reshape(found, own)
    if wanted == own:
        return whole
    return padded(node, whole, [(0, b - a) for a, b in zip(own, wanted, strict=True)])
