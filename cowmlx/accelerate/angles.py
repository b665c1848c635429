"""Angles of rotary positions, shared by the layers that ask for the same ones."""

from __future__ import annotations

import math
from collections import OrderedDict

import mlx.core as mx

from cowmlx.accelerate import kernels

# Kinds whose last angles are kept: more than a few models have together.
_MOST_KINDS = 32


class Angles:
    """Cosines and sines of the last positions asked for (arXiv 2104.09864, eq. 34)."""

    def __init__(self, frequencies: mx.array, scale: float) -> None:
        self._frequencies = frequencies
        self._scale = scale
        self._offset: int | mx.array | None = None
        self._length = 0
        self._kept: mx.array | None = None

    def get(self, offset: int | mx.array, length: int) -> mx.array:
        """Return what kernels rotate by.

        Args:
            offset: the first position, or (B,) one for every row.
            length: T, how many follow each other.

        Returns:
            (1 or B, T, 2, dims / 2), cosines and sines.
        """
        if self._kept is None or length != self._length or not _same(self._offset, offset):
            array = isinstance(offset, mx.array)
            # What is written to an array's name later does not change what was held.
            held = kernels.module().held(offset) if array else offset
            first = held if array else mx.array(offset)
            self._kept = kernels.module().angles(
                first, length, self._frequencies, scale=self._scale
            )
            self._offset, self._length = held, length
        return self._kept

    def forget(self) -> None:
        """Keep nothing of the last positions; they are computed again when they are asked for."""
        self._offset = self._kept = None


_kinds: OrderedDict[tuple[object, ...], tuple[Angles, mx.array | None]] = OrderedDict()


def shared(dims: int, base: float | None, freqs: mx.array | None, scale: float) -> Angles:
    """Return the angles of a kind.

    Args:
        dims: of a head that rotate.
        base: of the angles' geometric series, or None.
        freqs: (dims / 2,) by which positions are divided, or None.
        scale: by which positions are multiplied.
    """
    key = (dims, base, scale, id(freqs) if freqs is not None else None)
    found = _kinds.get(key)
    # The held array keeps its identity from being given to another.
    if found is not None and (freqs is None or _same(found[1], freqs)):
        _kinds.move_to_end(key)
        return found[0]
    if freqs is None:
        half = dims // 2
        steps = mx.arange(0, -half, -1, dtype=mx.float32)
        frequencies, held = mx.exp(steps * (math.log(base or 1) / half)), None
    else:
        held = kernels.module().held(freqs)
        frequencies = mx.reciprocal(held.astype(mx.float32))
    made = Angles(frequencies, scale)
    _kinds[key] = made, held
    if len(_kinds) > _MOST_KINDS:
        _kinds.popitem(last=False)
    return made


def forget() -> None:
    """Give the memory of all angles back."""
    for made, _ in _kinds.values():
        made.forget()


def _same(a: int | mx.array | None, b: int | mx.array) -> bool:
    if isinstance(a, mx.array) and isinstance(b, mx.array):
        one: bool = kernels.module().same(a, b)
        return one
    return a is not None and not isinstance(a, mx.array) and not isinstance(b, mx.array) and a == b
