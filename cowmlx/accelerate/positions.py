"""Positions that differ from the places of tokens in a cache.

A token of an image has a position on each of three axes, time, height and width (arXiv 2409.12191,
section 2.1), and the text behind an image follows the largest of them. So rows have a shift: what
is added to the place of a token of text to get its position. While a network is called, its
rotary embeddings get positions instead of places.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.positional_encoding import RoPE

from cowmlx.errors import Unsupported
from cowmlx.modules import items_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_ROPE = "rope"  # what mlx-lm's attention calls its rotary embedding
_PATHS = "_paths_of_rope"  # of a network, where it keeps the paths of these


class Axes(NamedTuple):
    """How the frequencies of a rotation are shared among time, height and width."""

    sections: tuple[int, int, int]
    """How many frequencies turn by each axis."""
    interleaved: bool
    """Whether they take turns, as in Qwen3-VL; else they are one section behind the other."""

    def chosen(self) -> list[int]:
        """Return the axis of every frequency."""
        time, height, width = self.sections
        if not self.interleaved:
            return [0] * time + [1] * height + [2] * width
        made = [0] * (time + height + width)
        made[1 : 3 * height : 3] = [1] * len(made[1 : 3 * height : 3])
        made[2 : 3 * width : 3] = [2] * len(made[2 : 3 * width : 3])
        return made


class _Shifts:
    """The shifts of the rows in the current call; None: positions are places."""

    current: list[int] | None = None


def shifts() -> list[int] | None:
    """Return the shift of every row in the current call; None: all are 0."""
    return _Shifts.current


@contextmanager
def shifted(network: Module, by: list[int]) -> Iterator[None]:
    """Call a network in the block with positions that are places plus the shift of the row.

    Args:
        network: that is called.
        by: the shift of every row.
    """
    added = by[0] if len(by) == 1 else mx.array(by, mx.int32)
    before, _Shifts.current = _Shifts.current, by
    try:
        with _instead(network, lambda rope: _Shifted(rope, added)):
            yield
    finally:
        _Shifts.current = before


@contextmanager
def placed(network: Module, positions: mx.array, axes: Axes) -> Iterator[None]:
    """Call a network in the block, for one row, with positions on three axes.

    Fused layers must not take the call.

    Args:
        network: that is called.
        positions: (3, S).
        axes: of its rotations.
    """
    shared = _Angles(positions, axes)
    with _instead(network, lambda rope: _Placed(rope, shared)):
        yield


def require_axes(network: Module, axes: Axes) -> None:
    """Raise unless all rotary embeddings of a network can turn by three axes.

    Raises:
        Unsupported: there are none, or they are of another kind or size.
    """
    ropes = [container[key] for container, key in _places(network)]
    turning = sum(axes.sections)
    for rope in ropes:
        if not isinstance(rope, RoPE) or rope.traditional or rope.dims != 2 * turning:
            name = type(rope).__name__
            dims = getattr(rope, "dims", None)
            raise Unsupported(
                f"a network with a {name} of {dims} dimensions takes no images: positions on "
                f"three axes need a RoPE of {2 * turning}",
                value=name,
            )
    if not ropes:
        raise Unsupported("a network without rotary embeddings has no positions on three axes")


class _Shifted:
    """Replaces a rotary embedding: the same rotation, at other positions."""

    def __init__(self, rope: Any, by: int | mx.array) -> None:
        self._rope = rope
        self._by = by

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        made: mx.array = self._rope(x, offset=offset + self._by)
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rope, name)


class _Angles:
    """Cosines and sines (S, dims / 2) of positions, made once for all layers that turn alike."""

    def __init__(self, positions: mx.array, axes: Axes) -> None:
        self._positions = positions.astype(mx.float32)
        self._chosen = mx.array(axes.chosen(), mx.int32)
        self._made: dict[tuple[float, float], tuple[mx.array, mx.array]] = {}

    def of(self, rope: Any) -> tuple[mx.array, mx.array]:
        key = float(rope.base), float(rope.scale)
        if key not in self._made:
            half = self._chosen.size
            steps = mx.arange(0, -half, -1, dtype=mx.float32)
            frequencies = mx.exp(steps * (math.log(key[0]) / half)) * key[1]
            angles = self._positions[self._chosen].T * frequencies
            self._made[key] = mx.cos(angles), mx.sin(angles)
        return self._made[key]


class _Placed:
    """Replaces a rotary embedding: turns by positions on three axes."""

    def __init__(self, rope: Any, angles: _Angles) -> None:
        self._rope = rope
        self._angles = angles

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        """Turn (1, heads, S, D), whatever its place."""
        cosines, sines = self._angles.of(self._rope)
        half = self._rope.dims // 2
        own = x.astype(mx.float32)
        first, second = own[..., :half], own[..., half : 2 * half]
        parts = [first * cosines - second * sines, second * cosines + first * sines]
        if 2 * half < x.shape[-1]:
            parts.append(own[..., 2 * half :])
        return mx.concatenate(parts, -1).astype(x.dtype)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rope, name)


@contextmanager
def _instead(network: Module, made: Callable[[Any], Any]) -> Iterator[None]:
    """Replace a network's rotary embeddings in the block."""
    changed: list[tuple[Any, Any, Any]] = []
    try:
        for container, key in _places(network):
            changed.append((container, key, container[key]))
            container[key] = made(container[key])
        yield
    finally:
        for container, key, rope in changed:
            container[key] = rope


def _places(network: Module) -> list[tuple[Any, Any]]:
    """Return where a network has its rotary embeddings: what holds each, and by which key.

    Paths are kept, not modules: a model that sleeps gets others.
    """
    paths = vars(network).get(_PATHS)
    if paths is None:
        paths = vars(network)[_PATHS] = tuple(_walk(network, ()))
    places = []
    for path in paths:
        container: Any = network
        for key in path[:-1]:
            container = container[key]
        places.append((container, path[-1]))
    return places


def _walk(container: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for key, value in items_of(container):
        if key == _ROPE and isinstance(value, Module):
            yield (*path, key)
        else:
            yield from _walk(value, (*path, key))
