"""Pooling: through the table's where it has it, else window by window."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as tuples
from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.importing.onnx_nodes import OnnxNode, converts
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
    powered = node.apply("power", node.apply("abs", value), node.number(p, value))
    total = node.apply("sum", powered, axis=list(range(2, value.rank)), keepdims=True)
    return node.apply("power", total, node.number(1 / p, value))


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
        if int(np.prod(self.kernel)) > MAX_WINDOW:
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
def _max_pool(node: OnnxNode) -> list[Value]:
    value = node.input()
    windows = Windows(node, value)
    image = channels_last(node, value)
    if node.has_output(1):
        return _with_places(node, value, windows, image)
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
        best = part if best is None else node.apply("maximum", best, part)
    assert best is not None
    return [channels_first(node, best)]


def _with_places(node: OnnxNode, value: Value, windows: Windows, image: Value) -> list[Value]:
    """Return the greatest elements, and their places in the flattened input."""
    sides = value.shape
    if not all(isinstance(side, int) for side in sides):
        raise Unsupported("its indices need an input of known shape")
    whole = windows.padded(image, _least(value.dtype))
    numbers = np.arange(int(np.prod(sides))).reshape(sides)  # type: ignore[arg-type]
    if node.attr("storage_order", 0) and windows.axes > 1:
        spatial = sides[2:]
        inner = np.arange(int(np.prod(spatial))).reshape(spatial[::-1]).T  # type: ignore[arg-type]
        first = np.arange(sides[0] * sides[1]) * inner.size  # type: ignore[arg-type]
        numbers = first.reshape(sides[0], sides[1], *[1] * len(spatial)) + inner  # type: ignore[arg-type]
    last = np.moveaxis(numbers, 1, -1)
    marked = np.pad(last, [(0, 0), *windows.pairs, (0, 0)], constant_values=-1)
    places = node.scope.constant(marked, "int64")
    best = index = None
    for (_, part), (_, place) in zip(windows.parts(whole), windows.parts(places), strict=True):
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


@converts("AveragePool", "LpPool")
def _average_pool(node: OnnxNode) -> Value:
    value = node.input()
    windows = Windows(node, value)
    image = channels_last(node, value)
    size = float(np.prod(windows.kernel))
    if node.op == "LpPool":
        p = node.attr("p", 2)
        powered = node.apply("power", node.apply("abs", image), node.number(p, image))
        total = _summed(node, windows, windows.padded(powered, 0))
        root = node.apply("power", total, node.number(1 / p, total))
        return channels_first(node, root)
    total = _summed(node, windows, windows.padded(image, 0))
    if not any(low or high for low, high in windows.pairs):
        return channels_first(node, node.apply("divide", total, node.number(size, total)))
    spatial: list[Any] = list(value.shape[2:])
    if not all(isinstance(side, int) for side in spatial):
        raise Unsupported(f"with padding, its axes of {spatial} must be known before a run")
    ones = np.ones((1, *spatial, 1))
    counted = windows.pads if node.attr("count_include_pad", 0) else [(0, 0)] * windows.axes
    ones = np.pad(ones, [(0, 0), *counted, (0, 0)], constant_values=1)
    rest = [
        (all_low - low, all_high - high)
        for (all_low, all_high), (low, high) in zip(windows.pairs, counted, strict=True)
    ]
    ones = np.pad(ones, [(0, 0), *rest, (0, 0)])
    counts = _counts(ones, windows)
    return channels_first(
        node, node.apply("divide", total, node.scope.constant(counts, total.dtype))
    )


def _counts(ones: Any, windows: Windows) -> Any:
    """Return how many elements each window counts."""
    for axis in range(windows.axes):
        kernel, dilation = windows.kernel[axis], windows.dilations[axis]
        stride, reach = windows.strides[axis], windows.reach[axis]
        length = (ones.shape[axis + 1] - reach) // stride + 1
        parts = [
            np.take(ones, np.arange(length) * stride + k * dilation, axis + 1)
            for k in range(kernel)
        ]
        ones = np.sum(parts, 0)
    return np.maximum(ones, 1)


def _summed(node: OnnxNode, windows: Windows, image: Value) -> Value:
    """Return the sums of all windows."""
    if windows.is_plain:
        found = node.apply(
            f"avg_pool{windows.axes}d", image, kernel_size=windows.kernel, stride=windows.strides
        )
        return node.apply("multiply", found, node.number(float(np.prod(windows.kernel)), found))
    total: Value | None = None
    for _, part in windows.parts(image):
        total = part if total is None else node.apply("add", total, part)
    assert total is not None
    return total


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
    total = int(np.prod(own))
    zeros = node.scope.constant(np.zeros(()), value.dtype)
    flat = node.apply("broadcast_to", zeros, shape=[total])
    length = int(np.prod(sides))
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
