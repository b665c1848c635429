"""Rotary position embeddings (arXiv 2104.09864): cosines and sines that layers share.

Single operations compute those of the positions that are asked for (:class:`Angles`). Fused layers
read them from a table (:class:`RoPETables`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from weakref import WeakValueDictionary

import mlx.core as mx

from cowmlx.accelerate import kernels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Kinds whose last angles are kept: more than a few models have together.
_MOST_KINDS = 32
_STEP = 64  # positions by which a table grows at least
_PART = 8  # and by this part of its length: a long text copies it a few times, not always
_FAR = 50_000  # a position behind which no rotation may depend on the length of the text
_FARTHEST = 1 << 24  # no float32 counts further
_PROBED = 4  # positions by which two rotations are compared
_LENGTH = 64  # of a text, by whose middle those that depend on the length are found


class UnsupportedRoPE(Exception):
    """A rotation that no table describes; the text says why."""


class Angles:
    """Cosines and sines of the last positions asked for (arXiv 2104.09864, eq. 34)."""

    def __init__(self, frequencies: mx.array, scale: float) -> None:
        self._frequencies = frequencies
        self._scale = scale
        self._offset: int | mx.array | None = None
        self._length = 0
        self._kept: mx.array | None = None

    def get(self, offset: int | mx.array, length: int) -> mx.array:
        """Return cosines and sines, (1 or B, T, 2, dims / 2).

        Args:
            offset: the first position, or (B,) one for every row.
            length: T, how many follow each other.
        """
        if self._kept is None or length != self._length or not _same(self._offset, offset):
            # What is written to an array's name later does not change this one.
            own = kernels.module().held(offset) if isinstance(offset, mx.array) else offset
            first = own if isinstance(own, mx.array) else mx.array(own)
            self._kept = kernels.module().angles(
                first, length, self._frequencies, scale=self._scale
            )
            self._offset, self._length = own, length
        return self._kept

    def forget(self) -> None:
        """Drop the last positions."""
        self._offset = self._kept = None


class RoPETables:
    """Cosines and sines of a layer's rotation, for as many positions as were needed.

    They are read off the layer's own module: applied to unit vectors it gives them, with all
    scaling of frequencies and of magnitudes.

    Args:
        module: turns (B, heads, T, D) by positions from ``offset`` on.
        dims: D.

    Attributes:
        dims: how many dimensions of a head turn.
        traditional: whether neighbours turn with each other, not halves.
        key: equal for rotations that are the same.
        tables: cosines and sines (positions, dims / 2), evaluated; none yet, or as many positions
            as were asked for.

    Raises:
        UnsupportedRoPE: its angles depend on more than the position.
    """

    def __init__(self, module: Any, dims: int) -> None:
        self._module = module
        self._width = dims
        self.dims = min(_dims_of(module) or dims, dims)
        self.traditional = bool(getattr(module, "traditional", False))
        if self.dims % 2:
            raise UnsupportedRoPE(f"{self.dims} dimensions of a head turn, an odd number")
        self._length = 0
        self.tables: list[mx.array] = []
        first, middle = _beyond(module), _LENGTH // 2
        near, far = self._read(0, _PROBED), self._read(first, _LENGTH)
        alone = self._read(first + middle, 1)
        alike = [mx.array_equal(a[middle], b[0]) for a, b in zip(far, alone, strict=True)]
        if not all(bool(equal.item()) for equal in alike):
            raise UnsupportedRoPE("its rotation depends on the length of the text")
        parts = (*near, *(mx.contiguous(table[:_PROBED]) for table in far))
        probed = tuple(bytes(memoryview(part)) for part in parts)  # type: ignore[arg-type]
        self.key = self.dims, self.traditional, first, probed

    def upto(self, count: int) -> list[mx.array]:
        """Return cosines and sines (positions, dims / 2), evaluated, of ``count`` or more."""
        if count > self._length:
            first = self._length
            more = self._read(first, max(_STEP, count - first, first // _PART))
            joined = zip(self.tables, more, strict=True) if first else ()
            tables = [mx.concatenate(list(parts)) for parts in joined] or more
            mx.eval(tables)
            self.tables, self._length = tables, tables[0].shape[0]
        return self.tables

    def forget(self) -> None:
        """Drop all positions; they are read again when they are asked for."""
        self.tables, self._length = [], 0

    def _read(self, first: int, count: int) -> list[mx.array]:
        """Return cosines and sines of positions from ``first`` on, evaluated."""
        half = self.dims // 2
        columns = mx.arange(self._width)
        pairs = (columns < self.dims) & (columns % 2 == 0)
        unit = pairs if self.traditional else columns < half
        x = mx.broadcast_to(unit.astype(mx.float32), (1, 1, count, self._width))
        turned = self._module(mx.contiguous(x), offset=first)[0, 0, :, : self.dims]
        if self.traditional:
            parts = [turned[:, 0::2], turned[:, 1::2]]
        else:
            parts = [turned[:, :half], turned[:, half:]]
        tables = [mx.contiguous(part.astype(mx.float32)) for part in parts]
        mx.eval(tables)
        return tables


_kinds: OrderedDict[tuple[object, ...], tuple[Angles, mx.array | None]] = OrderedDict()
_shared: WeakValueDictionary[Any, RoPETables] = WeakValueDictionary()  # by their keys
_made: WeakValueDictionary[Any, RoPETables] = WeakValueDictionary()  # by their modules' settings


def shared(dims: int, base: float | None, freqs: mx.array | None, scale: float) -> Angles:
    """Return the angles of a kind.

    Args:
        dims: dimensions of a head that rotate.
        base: of the angles' geometric series, or None.
        freqs: (dims / 2,) by which positions are divided, or None.
        scale: by which positions are multiplied.
    """
    key = (dims, base, scale, id(freqs) if freqs is not None else None)
    tables = _kinds.get(key)
    # The array that is kept prevents another from getting its identity.
    if tables is not None and (freqs is None or _same(tables[1], freqs)):
        _kinds.move_to_end(key)
        return tables[0]
    if freqs is None:
        half = dims // 2
        steps = mx.arange(0, -half, -1, dtype=mx.float32)
        frequencies, kept = mx.exp(steps * (math.log(base or 1) / half)), None
    else:
        kept = kernels.module().held(freqs)
        frequencies = mx.reciprocal(kept.astype(mx.float32))
    angles = Angles(frequencies, scale)
    _kinds[key] = angles, kept
    if len(_kinds) > _MOST_KINDS:
        _kinds.popitem(last=False)
    return angles


def tables_of(module: Any, dims: int) -> RoPETables:
    """Return the tables of a layer's rotation, shared by all layers that rotate alike.

    Raises:
        UnsupportedRoPE: the angles depend on more than the position.
    """
    settings = _settings(module, dims)
    known = _made.get(settings)
    if known is not None:
        return known
    own = RoPETables(module, dims)
    tables = _shared.setdefault(own.key, own)
    if settings is not None:
        _made[settings] = tables
    return tables


def forget() -> None:
    """Free all angles and tables, unless a step under way reads them."""
    for angles, _ in _kinds.values():
        angles.forget()
    for tables in list(_shared.values()):
        tables.forget()


def _same(a: int | mx.array | None, b: int | mx.array) -> bool:
    if isinstance(a, mx.array) and isinstance(b, mx.array):
        one: bool = kernels.module().same(a, b)
        return one
    return a is not None and not isinstance(a, mx.array) and not isinstance(b, mx.array) and a == b


def _settings(module: Any, dims: int) -> object | None:
    """Return all that a rotation depends on, None if that is more than a few numbers."""
    from mlx.nn.layers.base import Module  # late: a start needs none of it

    if not isinstance(module, Module) or len(module):
        return None
    own = {name: value for name, value in vars(module).items() if name != "_no_grad"}
    if not all(value is None or isinstance(value, int | float | str) for value in own.values()):
        return None
    return type(module), dims, tuple(sorted(own.items()))


def _beyond(module: Any) -> int:
    """Return a position behind all lengths of texts that a rotation knows."""
    own = {name: value for name, value in vars(module).items() if "position" in name}
    lengths = [int(value) for value in own.values() if isinstance(value, int | float)]
    return min(max([_FAR, *(2 * length for length in lengths)]), _FARTHEST)


def _dims_of(module: Any) -> int | None:
    dims = getattr(module, "dims", None) or getattr(module, "dim", None)
    return dims if isinstance(dims, int) else None
