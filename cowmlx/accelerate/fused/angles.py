"""By which angles the heads of a layer turn with their position: read off the layer's own module.

What a rotation does to unit vectors are its cosines and sines (arXiv 2104.09864, eq. 34), with all
scaling of frequencies and of magnitudes that the module has.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

import mlx.core as mx
from mlx.nn.layers.base import Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STEP = 64  # positions by which a table grows at least
_PART = 8  # and of what it has, one in so many: a long text copies it a few times, not always
_FAR = 50_000  # a position behind which no rotation may depend on the length of the text
_SEEN = 4  # positions by which two rotations are told apart


class Unturnable(Exception):
    """A rotation that no table describes; the text says why."""


class Angles:
    """Cosines and sines of one rotation, for as many positions as were needed.

    Args:
        module: turns (B, heads, T, D) by positions from ``offset`` on.
        dims: of a head.

    Attributes:
        dims: those that turn.
        traditional: whether neighbours turn with each other, not halves.
        key: equal for rotations that are the same.
        tables: cosines and sines (positions, dims / 2), evaluated; none yet, or as many positions
            as were asked for.

    Raises:
        Unturnable: its angles depend on more than the position.
    """

    def __init__(self, module: Any, dims: int) -> None:
        self._module = module
        self._width = dims
        self.dims = min(_dims_of(module) or dims, dims)
        self.traditional = bool(_setting(module, "traditional", False))
        if self.dims % 2:
            raise Unturnable(f"{self.dims} dimensions of a head turn, an odd number")
        self._length = 0
        self.tables: list[mx.array] = []
        near, far = self._read(0, _SEEN), self._read(_FAR, _SEEN)
        last = self._read(_FAR + _SEEN - 1, 1)
        alike = [mx.array_equal(a[-1:], b) for a, b in zip(far, last, strict=True)]
        if not all(bool(each.item()) for each in alike):
            raise Unturnable("its rotation depends on the length of the text")
        seen = tuple(bytes(memoryview(each)) for each in (*near, *far))  # type: ignore[arg-type]
        self.key = self.dims, self.traditional, seen

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
        """Keep no positions; those that are asked for are read again."""
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


_shared: WeakValueDictionary[Any, Angles] = WeakValueDictionary()
_made: WeakValueDictionary[Any, Angles] = WeakValueDictionary()  # by what they were made of


def shared(module: Any, dims: int) -> Angles:
    """Return the angles of a module, those that others use already if they are the same.

    Raises:
        Unturnable: they depend on more than the position.
    """
    settings = _settings(module, dims)
    known = _made.get(settings)
    if known is not None:
        return known
    own = Angles(module, dims)
    angles = _shared.setdefault(own.key, own)
    if settings is not None:
        _made[settings] = angles
    return angles


def forget() -> None:
    """Give the memory of all tables back, as far as no step under way reads them."""
    for angles in list(_shared.values()):
        angles.forget()


def _settings(module: Any, dims: int) -> object | None:
    """Return what a rotation is made of, None if that is more than a few numbers."""
    if not isinstance(module, Module) or len(module):
        return None
    own = {name: value for name, value in vars(module).items() if name != "_no_grad"}
    if not all(value is None or isinstance(value, int | float | str) for value in own.values()):
        return None
    return type(module), dims, tuple(sorted(own.items()))


def _dims_of(module: Any) -> int | None:
    found = _setting(module, "dims", None) or _setting(module, "dim", None)
    return found if isinstance(found, int) else None


def _setting(module: Any, name: str, otherwise: Any) -> Any:
    inner = getattr(module, "_plain", module)  # of one whose angles are shared
    return getattr(inner, name, otherwise)
