"""Resizing of images as Pillow does it, to the byte: convolution with antialiasing, in integers.

As ``Resample.c`` of Pillow 13: rows first, then columns, or the other way round where many more
rows are dropped than columns; each with coefficients of 22 bits, rounded to bytes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_BITS = 32 - 8 - 2
_PART = 1 << 22  # products of a turn
_WEIGHTS = 1 << 12  # of a filter that are computed in a turn
_TOGETHER = 1 << 14  # products of an operation; taps of small results are combined at once


def _bilinear(x: float) -> float:
    x = abs(x)
    return 1.0 - x if x < 1.0 else 0.0


def _bicubic(x: float) -> float:
    a, x = -0.5, abs(x)
    if x < 1.0:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2.0 else 0.0


def _sinc(x: float) -> float:
    if x == 0.0:
        return 1.0
    x *= math.pi
    return math.sin(x) / x


def _lanczos(x: float) -> float:
    return _sinc(x) * _sinc(x / 3) if -3.0 <= x < 3.0 else 0.0


class Filter(NamedTuple):
    """A filter: its weight at a distance, and the distance from which on it is 0."""

    weight: Callable[[float], float]
    support: float


LANCZOS, BILINEAR, BICUBIC = 1, 2, 3
"""The numbers that Pillow and ``preprocessor_config.json`` have."""
FILTERS = {
    LANCZOS: Filter(_lanczos, 3.0),
    BILINEAR: Filter(_bilinear, 1.0),
    BICUBIC: Filter(_bicubic, 2.0),
}


class _Taps(NamedTuple):
    """Of each of n results: the places (n, K) that it is made of, and their weights (n, K)."""

    places: mx.array
    weights: mx.array


def _taps(size: int, wanted: int, kind: Filter) -> Generator[None, None, _Taps]:
    scale = size / wanted
    wide = max(scale, 1.0)
    support = kind.support * wide
    count = min(math.ceil(support) * 2 + 1, size)
    places, weights = [], []
    computed = 0
    for at in range(wanted):
        center = (at + 0.5) * scale
        first = max(int(center - support + 0.5), 0)
        end = min(int(center + support + 0.5), size)
        own: list[float] = []
        for x in range(first, end):
            if computed >= _WEIGHTS:
                computed = 0
                yield
            own.append(kind.weight((x - center + 0.5) * (1.0 / wide)))
            computed += 1
        total = 0.0
        for weight in own:
            total += weight
        own = [weight / total for weight in own] if total else own
        fixed = [int(weight * (1 << _BITS) + (-0.5 if weight < 0 else 0.5)) for weight in own]
        rest = count - len(fixed)
        weights.append(fixed + [0] * rest)
        places.append([*range(first, end), *[0] * rest])
    return _Taps(mx.array(places, mx.int32), mx.array(weights, mx.int32))


def _combined(rows: mx.array, taps: _Taps) -> mx.array:
    """Combine rows (N, M) of uint8 to (n, M), lazily, in a bounded number of operations."""
    wanted, count = taps.places.shape
    together = max(1, _TOGETHER // (wanted * rows.shape[1]))
    total = mx.array(1 << (_BITS - 1), mx.int32)
    for first in range(0, count, together):
        own = slice(first, first + together)
        part = rows[taps.places[:, own]].astype(mx.int32)
        total = total + (part * taps.weights[:, own, None]).sum(axis=1)
    return mx.clip(total >> _BITS, 0, 255).astype(mx.uint8)


def _along_first(image: mx.array, wanted: int, kind: Filter) -> Generator[None, None, mx.array]:
    """Resize the first axis of (N, A, C)."""
    size, across, channels = image.shape
    taps = yield from _taps(size, wanted, kind)
    width = max(1, _PART // (wanted * taps.places.shape[1] * channels))
    parts = []
    for begin in range(0, across, width):
        rows = image[:, begin : begin + width]
        part = _combined(mx.contiguous(rows).reshape(size, -1), taps)
        parts.append(part.reshape(wanted, -1, channels))
        mx.eval(parts)
        yield
    return mx.concatenate(parts, axis=1)


def resize_steps(
    image: mx.array, height: int, width: int, resample: int
) -> Generator[None, None, mx.array]:
    """Resize an image, yielding between bounded parts.

    Args:
        image: (H, W, C) of uint8.
        height: the new one.
        width: the new one.
        resample: a key of :data:`FILTERS`.

    Returns:
        (height, width, C) of uint8.
    """
    kind = FILTERS[resample]
    if _is_tall(image.shape[0] - height, image.shape[1] - width):
        image = yield from _along_first(image, height, kind)
    if image.shape[1] != width:
        turned = yield from _along_first(image.transpose(1, 0, 2), width, kind)
        image = turned.transpose(1, 0, 2)
    if image.shape[0] != height:
        image = yield from _along_first(image, height, kind)
    return image


def smoothed(grid: mx.array, height: int, width: int) -> mx.array:
    """Resize a grid of numbers (H, W, C) to (height, width, C), lazily.

    Bilinear with antialiasing, in float32: as positions of a tower are resized.
    """
    down, across = _weights(grid.shape[0], height), _weights(grid.shape[1], width)
    tall = mx.tensordot(down, grid.astype(mx.float32), axes=[[1], [0]])
    return mx.tensordot(across, tall, axes=[[1], [1]]).transpose(1, 0, 2)


def _weights(size: int, wanted: int) -> mx.array:
    """Return the weights (wanted, size) of places."""
    scale = mx.array(size / wanted, mx.float32)
    centers = (mx.arange(wanted).astype(mx.float32) + 0.5) * scale - 0.5
    off = mx.abs(mx.arange(size).astype(mx.float32)[None] - centers[:, None])
    weights = mx.maximum(1 - off / mx.maximum(scale, 1), 0)
    return weights / weights.sum(axis=1, keepdims=True)


def _is_tall(rows: int, columns: int) -> bool:
    """Whether so many rows are dropped, beside columns, that columns are resized first."""
    return rows > 0 and rows > 2 * columns
