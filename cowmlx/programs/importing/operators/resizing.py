"""Resizing: a matrix or places for each axis, computed at load."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.dimensions import compare
from cowmlx.programs.importing.onnx_nodes import OnnxNode, converts
from cowmlx.programs.importing.values import Value


@converts("Upsample")
def _upsample(node: OnnxNode) -> Value:
    value = node.input()
    scales = node.attr("scales") if node.opset < 9 else np.ravel(node.known(1, "scales"))
    mode = node.attr("mode", "nearest")
    for axis, scale in enumerate(scales):
        if scale == 1:
            continue
        side = _side(value, axis)
        plan = _Axis(node, side, math.floor(side * scale), float(scale), mode)
        plan.transform, plan.rounding = "asymmetric", "floor"
        value = plan.applied(value, axis)
    return value


def _side(value: Value, axis: int) -> int:
    side = value.shape[axis]
    if not isinstance(side, int):
        raise Unsupported(f"its axis of {side} must be known before a run")
    return side


@converts("Resize")
def _resize(node: OnnxNode) -> Value:
    value = node.input()
    axes = [node.axis_of(axis, value.rank) for axis in node.attr("axes", range(value.rank))]
    if len(set(axes)) != len(axes):
        raise BadFormat(f"has axes {axes[:8]}, must be different ones")
    scales = node.scope.known(node.optional(2 if node.opset >= 11 else 1))
    wanted: list[Any] = [None] * len(axes)
    transform = node.attr("coordinate_transformation_mode", "half_pixel")
    crops = transform == "tf_crop_and_resize"
    if scales is None and len(node.inputs) < 4:
        raise node.depends("scales", node.proto.input[min(2, len(node.inputs) - 1)])
    if scales is None or not scales.size:
        wanted, scales = _by_sizes(node, value, axes, crops)
    region = node.scope.known(node.optional(1)) if node.opset >= 11 else None
    if crops and region is None:
        raise node.depends("roi", "roi")
    mode = node.attr("mode", "nearest")
    outside: list[tuple[int, Any]] = []
    for at, axis in enumerate(axes):
        scale, size = float(np.ravel(scales)[at]), wanted[at]
        if scale == 1 and size is None and not crops:
            continue
        side = _side(value, axis)
        size = math.floor(side * scale) if size is None else size
        plan = _Axis(node, side, size, scale, mode)
        if region is not None and region.size:
            plan.region = (float(np.ravel(region)[at]), float(np.ravel(region)[at + len(axes)]))
        if node.opset < 11:
            plan.transform, plan.rounding = "asymmetric", "floor"
        plan.has_scale = wanted[at] is None
        value = plan.applied(value, axis)
        if crops:
            outside.append((axis, plan.outside))
    for axis, flags in outside:
        if flags.any():
            shape = [1] * value.rank
            shape[axis] = flags.size
            mask = node.scope.constant(flags.reshape(shape))
            filling = node.number(node.attr("extrapolation_value", 0.0), value)
            value = node.apply("where", mask, filling, value)
    return value


def _by_sizes(node: OnnxNode, value: Value, axes: list[int], crops: bool) -> tuple[list[Any], Any]:
    """Return the sizes of axes, or None for one that stays as it is, and their scales."""
    sizes = node.dims(3, "sizes")
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    scales = np.ones(len(axes))
    wanted: list[Any] = list(sizes)
    for at, (size, axis) in enumerate(zip(sizes, axes, strict=True)):
        if policy == "stretch" and not crops and compare(size, value.shape[axis]):
            wanted[at] = None
            continue
        if not isinstance(size, int):
            raise Unsupported(f"resizes an axis of {value.shape[axis]} to {size}: fix them at load")
        scales[at] = size / max(_side(value, axis), 1)
    if policy == "stretch":
        return wanted, scales
    scale = min(scales) if policy == "not_larger" else max(scales)
    sizes = [math.floor(scale * _side(value, axis) + 0.5) for axis in axes]
    return sizes, np.full(len(axes), scale)


class _Axis:
    """What happens to one axis."""

    def __init__(self, node: OnnxNode, side: int, size: int, scale: float, mode: str) -> None:
        if not 0 <= size <= 1 << 24 or scale <= 0:
            raise BadFormat(f"resizes an axis of {side} by {scale} to {size}")
        self.node = node
        self.side, self.size, self.scale, self.mode = side, size, scale, mode
        self.transform = node.attr("coordinate_transformation_mode", "half_pixel")
        self.rounding = node.attr("nearest_mode", "round_prefer_floor")
        self.region = (0.0, 1.0)
        self.has_scale = True
        self.outside = np.zeros(0, bool)

    def places(self) -> Any:
        """Return where each element of the result is in the input."""
        x = np.arange(self.size, dtype="float64")
        whole = self.side * self.scale
        if self.transform == "asymmetric":
            return x / self.scale
        if self.transform == "align_corners":
            length = whole if self.has_scale else self.size
            return x * (self.side - 1) / (length - 1) if length > 1 else x * 0
        if self.transform == "tf_crop_and_resize":
            start, end = self.region
            if self.size > 1:
                found = start * (self.side - 1) + x * (end - start) * (self.side - 1) / (
                    self.size - 1
                )
            else:
                found = x + 0.5 * (start + end) * (self.side - 1)
            self.outside = (found < 0) | (found > self.side - 1)
            return found
        if self.transform == "pytorch_half_pixel" and self.size == 1:
            return x * 0 - 0.5
        if self.transform == "half_pixel_symmetric":
            adjusted = self.size / whole
            centre = self.side / 2
            offset = centre * (1 - adjusted)
            return offset + (x + 0.5) / self.scale - 0.5
        if self.transform in ("half_pixel", "pytorch_half_pixel"):
            return (x + 0.5) / self.scale - 0.5
        raise Unsupported(f"has the coordinate_transformation_mode {self.transform!r}")

    def applied(self, value: Value, axis: int) -> Value:
        """Resize an axis of a value."""
        identity = self.size == self.side and self.scale == 1
        if identity and self.transform != "tf_crop_and_resize":
            return value
        self.node.bounded([self.size])
        places = self.places()
        if self.mode == "nearest":
            whole = self._rounded(places).clip(0, self.side - 1).astype("int64")
            return self.node.apply("take", value, self.node.scope.constant(whole), axis=axis)
        self.node.bounded([self.size, self.side])
        matrix = self._matrix(places)
        like = value if "float" in value.dtype else self.node.scope.cast(value, "float32")
        weight = self.node.scope.constant(matrix.T, like.dtype)
        order = [at for at in range(value.rank) if at != axis] + [axis]
        moved = self.node.scope.transpose(like, order)
        found = self.node.apply("matmul", moved, weight)
        back = [int(at) for at in np.argsort(order)]
        return self.node.scope.cast(self.node.scope.transpose(found, back), value.dtype)

    def _rounded(self, places: Any) -> Any:
        if self.rounding == "round_prefer_floor":
            return np.ceil(places - 0.5)
        if self.rounding == "round_prefer_ceil":
            return np.floor(places + 0.5)
        return np.floor(places) if self.rounding == "floor" else np.ceil(places)

    def _matrix(self, places: Any) -> Any:
        """Return how much each element of the result has of each of the input."""
        antialias = self.node.attr("antialias", 0) and self.scale < 1
        stretch = self.scale if antialias else 1.0
        radius = 1 if self.mode == "linear" else 2
        if self.mode not in ("linear", "cubic"):
            raise Unsupported(f"has the mode {self.mode!r}")
        span = math.ceil(radius / stretch)
        self.node.bounded([self.size, 2 * span + 1])
        base = np.floor(places).astype("int64")
        matrix = np.zeros((self.size, self.side))
        taps = base[:, None] + np.arange(-span, span + 1)[None, :]
        distance = (taps - places[:, None]) * stretch
        weights = _kernel(distance, self.mode, self.node.attr("cubic_coeff_a", -0.75))
        inside = (taps >= 0) & (taps < self.side)
        if self.node.attr("exclude_outside", 0):
            weights = np.where(inside, weights, 0)
        totals = weights.sum(1, keepdims=True)
        if antialias or self.node.attr("exclude_outside", 0):
            weights = weights / np.where(totals == 0, 1, totals)
        rows = np.broadcast_to(np.arange(self.size)[:, None], taps.shape)
        np.add.at(matrix, (rows, taps.clip(0, self.side - 1)), weights)
        return matrix


def _kernel(x: Any, mode: str, a: float) -> Any:
    x = np.abs(x)
    if mode == "linear":
        return np.maximum(1 - x, 0)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


@converts("GridSample")
def _grid_sample(node: OnnxNode) -> Value:
    value, grid = node.input(0), node.input(1)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(node.attr("mode", "linear"))
    mode = mode or node.attr("mode", "linear")
    sides = value.shape
    if not all(isinstance(side, int) for side in (*sides, *grid.shape)):
        raise Unsupported("its shapes must be known before a run")
    axes = value.rank - 2
    # The last axis of the grid counts from the last axis of the image.
    each = [
        _unnormalized(node, _last(node, grid, axes - 1 - at), int(sides[2 + at]))  # type: ignore[arg-type]
        for at in range(axes)
    ]
    if mode == "nearest":
        return _sampled(node, value, [[(node.apply("round", x), None)] for x in each])
    taps = []
    for x in each:
        base = node.apply("floor", x)
        offsets = (0, 1) if mode == "linear" else (-1, 0, 1, 2)
        if len(offsets) ** axes > 64:
            raise Unsupported(f"has the mode {mode} for {axes} axes")
        taps.append([_tap(node, x, base, offset, mode) for offset in offsets])
    return _sampled(node, value, taps)


def _last(node: OnnxNode, grid: Value, at: int) -> Value:
    cut = node.apply("slice", grid, start=[at], stop=[at + 1], axes=[grid.rank - 1])
    return node.scope.reshape(cut, list(grid.shape[:-1]))


def _unnormalized(node: OnnxNode, x: Value, side: int) -> Value:
    align = node.attr("align_corners", 0)
    moved = node.apply("add", x, node.number(1, x))
    if align:
        return node.apply("multiply", moved, node.number((side - 1) / 2, x))
    scaled = node.apply("multiply", moved, node.number(side / 2, x))
    return node.apply("subtract", scaled, node.number(0.5, x))


def _tap(
    node: OnnxNode, x: Value, base: Value, offset: int, mode: str
) -> tuple[Value, Value | None]:
    place = node.apply("add", base, node.number(offset, base))
    distance = node.apply("abs", node.apply("subtract", x, place))
    one = node.number(1, x)
    if mode == "linear":
        return place, node.apply("subtract", one, distance)
    a = -0.75

    def polynomial(*factors: float) -> Value:
        total = node.number(factors[0], x)
        for factor in factors[1:]:
            total = node.apply(
                "add", node.apply("multiply", total, distance), node.number(factor, x)
            )
        return total

    near = polynomial(a + 2, -(a + 3), 0, 1)
    far = polynomial(a, -5 * a, 8 * a, -4 * a)
    return place, node.apply("where", node.apply("less_equal", distance, one), near, far)


def _reflected(node: OnnxNode, place: Value, side: int) -> Value:
    """Return places that come back from the ends of an axis."""
    align = node.attr("align_corners", 0)
    low, high = (0.0, side - 1.0) if align else (-0.5, side - 0.5)
    span = high - low
    if span <= 0:
        return node.apply("multiply", place, node.number(0, place))
    moved = node.apply("abs", node.apply("subtract", place, node.number(low, place)))
    turns = node.apply("floor", node.apply("divide", moved, node.number(span, place)))
    extra = node.apply("subtract", moved, node.apply("multiply", turns, node.number(span, place)))
    is_even = node.apply(
        "equal", node.apply("remainder", turns, node.number(2, place)), node.number(0, place)
    )
    forward = node.apply("add", extra, node.number(low, place))
    backward = node.apply("subtract", node.number(high, place), extra)
    return node.apply("where", is_even, forward, backward)


def _sampled(node: OnnxNode, value: Value, taps: list[list[tuple[Value, Value | None]]]) -> Value:
    from itertools import product

    sides = [int(side) for side in value.shape]  # type: ignore[arg-type]
    batch, channels = sides[:2]
    spatial = sides[2:]
    padding = node.attr("padding_mode", "zeros")
    outer = list(taps[0][0][0].shape[1:])
    length = int(np.prod(outer))  # type: ignore[arg-type]
    flat = node.scope.reshape(value, [batch, channels, int(np.prod(spatial))])
    total: Value | None = None
    for chosen in product(*taps):
        index = weight = inside = None
        for at, (place, share) in enumerate(chosen):
            side = spatial[at]
            if padding == "reflection":
                place = _reflected(node, place, side)
            held = node.apply("clip", place, a_min=0, a_max=side - 1)
            if padding == "zeros":
                own = node.apply("equal", held, place)
                inside = own if inside is None else node.apply("logical_and", inside, own)
            whole = node.scope.cast(held, "int64")
            if index is not None:
                index = node.apply(
                    "add", node.apply("multiply", index, node.number(side, index)), whole
                )
            else:
                index = whole
            if share is not None:
                weight = share if weight is None else node.apply("multiply", weight, share)
        assert index is not None
        places = node.scope.reshape(index, [batch, 1, length])
        places = node.apply("broadcast_to", places, shape=[batch, channels, length])
        part = node.apply("take_along_axis", flat, places, axis=2)
        if inside is not None:
            mask = node.scope.reshape(inside, [batch, 1, length])
            part = node.apply("where", mask, part, node.number(0, part))
        if weight is not None:
            scale = node.scope.cast(node.scope.reshape(weight, [batch, 1, length]), part.dtype)
            part = node.apply("multiply", part, scale)
        total = part if total is None else node.apply("add", total, part)
    assert total is not None
    return node.scope.reshape(total, [batch, channels, *outer])
