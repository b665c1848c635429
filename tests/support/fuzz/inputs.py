"""Arrays of a case: what it says of them, and the numpy arrays that they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from support.arrays import NUMPY

FLOATS = ("float16", "bfloat16", "float32", "float64")
INEXACT = (*FLOATS, "complex64")
MATRICES = ("regular", "definite", "lower", "upper")
LARGE = (3e38, 65504.0, 1e300)
# Kept cases draw from this order.
ODD = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 1.0, -1.0, 3e38, 65504.0, 0.5, 1e300)

Described = dict[str, Any]
"""``dtype``, ``shape``, ``layout``; ``values`` are a ``kind``, a ``seed``, ``low`` to ``high``."""


@dataclass(frozen=True)
class Array:
    """Elements with a dtype; bfloat16 as its bits."""

    dtype: str
    data: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def numbers(self) -> np.ndarray:
        """The elements as numpy computes with them."""
        return from_bits(self.data) if self.dtype == "bfloat16" else self.data


def row_major(array: np.ndarray) -> np.ndarray:
    """A copy in row-major order; unlike numpy's own functions it keeps the shape ()."""
    return np.array(array, order="C")


def from_bits(bits: np.ndarray) -> np.ndarray:
    """The float32 of a bfloat16's bits."""
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32).reshape(bits.shape)


def to_bits(numbers: np.ndarray) -> np.ndarray:
    """The bfloat16 that is nearest to a float32, as its bits."""
    wide = np.array(numbers, np.float32, order="C", ndmin=1).view(np.uint32)
    wide = wide.reshape(np.shape(numbers))
    rounded = ((wide.astype(np.uint64) + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(numbers), np.uint16(0x7FC0), rounded)


def array_of(dtype: str, numbers: np.ndarray) -> Array:
    """Numbers in a dtype."""
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            return Array(dtype, to_bits(numbers))
        return Array(dtype, np.array(numbers, NUMPY[dtype], order="C"))


def make(described: Described, rows: int | None = None, axis: int = 0) -> Array:
    """The array that a case describes, row-major; with ``rows`` as many different ones, stacked."""
    if rows is None:
        return array_of(described["dtype"], _values(described, 0))
    shape = [*described["shape"][:axis], rows, *described["shape"][axis:]]
    if rows == 0:
        return array_of(described["dtype"], np.zeros(shape, np.float32))
    parts = [make_row(described, row).data for row in range(rows)]
    return Array(described["dtype"], row_major(np.stack(parts, axis)))


def make_row(described: Described, row: int) -> Array:
    return array_of(described["dtype"], _values(described, row))


def laid_out(array: np.ndarray, layout: dict[str, Any] | None) -> np.ndarray:
    """The same elements in memory of another layout."""
    if not layout or not array.ndim:
        return array
    order = [axis for axis in layout.get("order", []) if axis < array.ndim]
    order += [axis for axis in range(array.ndim) if axis not in order]
    steps = (list(layout.get("steps", [])) + [1] * array.ndim)[: array.ndim]
    padded = [array.shape[axis] * abs(steps[axis]) for axis in order]
    buffer = np.zeros(int(np.prod(padded)) + 3, array.dtype)
    view = buffer[1 : 1 + int(np.prod(padded))].reshape(padded)
    view = view[tuple(slice(None, None, abs(steps[axis])) for axis in order)]
    view = view.transpose(np.argsort(order))
    view = view[tuple(slice(None, None, -1 if step < 0 else 1) for step in steps)]
    view[...] = array
    odd = layout.get("odd")
    if odd is None or not array.size:
        return view
    # The stride of a dimension of size 1 is never used, so it may be any number.
    strides = [
        odd * array.itemsize if side == 1 else step
        for side, step in zip(view.shape, view.strides, strict=True)
    ]
    offset = view.ctypes.data - buffer.ctypes.data
    return np.ndarray(view.shape, view.dtype, buffer, offset, strides)


def _values(described: Described, row: int) -> np.ndarray:
    """Numbers of the shape, the same for the same seed and row."""
    dtype, shape, values = described["dtype"], tuple(described["shape"]), described["values"]
    kind, words = values["kind"], values.get("words", ())
    source = np.random.default_rng([values["seed"], row])
    count = math.prod(shape)
    low, high = values.get("low", -2), values.get("high", 2)
    if dtype not in INEXACT:
        return _integers(source, dtype, count, kind, low, high, words).reshape(shape)
    found = _floats(source, count, kind, low, high)
    if "sorted" in words:
        found.sort()
    if set(MATRICES) & set(words) and len(shape) >= 2 and shape[-1] == shape[-2]:
        found = _matrices(found.reshape(shape), words)
    if dtype == "complex64":
        found = found.reshape(shape) + 1j * _floats(source, count, kind, low, high).reshape(shape)
    return found.reshape(shape)


def _integers(
    source: np.random.Generator,
    dtype: str,
    count: int,
    kind: str,
    low: float,
    high: float,
    words: Any,
) -> np.ndarray:
    if dtype == "bool":
        return source.random(count) < 0.5
    limits = np.iinfo(NUMPY[dtype])
    if kind == "bits":
        return source.integers(limits.min, limits.max, count, NUMPY[dtype], endpoint=True)
    if kind == "special":
        extremes = np.array([limits.min, limits.max, 0, 1, limits.max // 2], NUMPY[dtype])
        return source.choice(extremes, count)
    low, high = max(int(low), limits.min), min(int(high), limits.max)
    low, high = min(low, high), max(low, high)
    if "distinct" in words and high - low + 1 >= count:
        found = low + source.permutation(high - low + 1)[:count]
    else:
        found = source.integers(low, high, count, endpoint=True)
    return np.sort(found) if "sorted" in words else found


def _floats(
    source: np.random.Generator, count: int, kind: str, low: float, high: float
) -> np.ndarray:
    if kind == "zeros":
        return np.zeros(count)
    if kind == "ties":
        return source.integers(-2, 2, count, endpoint=True).astype(np.float64)
    if kind in ("special", "infinite"):
        odd = np.array([each for each in ODD if kind == "special" or each not in LARGE])
        return np.where(source.random(count) < 0.6, source.choice(odd, count), source.normal())
    if kind == "normal":
        return source.normal(size=count) * max(abs(low), abs(high), 1e-3)
    # Numbers that differ by enough for a gradient to see no tie, in a random order.
    step = (high - low) / max(count, 1)
    places = np.arange(count) + 0.25 + 0.5 * source.random(count)
    return source.permutation(low + places * step)


def _matrices(found: np.ndarray, words: Any) -> np.ndarray:
    """Make each matrix regular, and of the form that words say."""
    if "definite" in words:
        found = found @ np.swapaxes(found, -1, -2)
    places = np.arange(found.shape[-1])
    found[..., places, places] += np.where(found[..., places, places] >= 0, 3.0, -3.0)
    if "lower" in words:
        return np.tril(found)
    return np.triu(found) if "upper" in words else found
