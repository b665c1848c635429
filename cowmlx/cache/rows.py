"""The batch forms of layer caches."""

from __future__ import annotations

from functools import partial

import mlx.core as mx

from cowmlx.cache.dequantized import DequantizedRows
from cowmlx.cache.key_values import KVRows, QuantizedRows, RotatingRows
from cowmlx.errors import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.cache.batch import Row, Rows


class ArrayRows:
    """The state of a recurrence: arrays (B, ...), as few as there are rows."""

    def __init__(self, rows: Rows, layer: Any) -> None:
        self._rows = rows
        self._kind = type(layer)
        self.cache: list[mx.array | None] = [None] * len(layer.cache)
        self.left_padding = self.lengths = None

    # For networks.

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class for ``isinstance``, which mamba and qwen3_next use."""
        return self._kind

    def __getitem__(self, index: int) -> mx.array | None:
        return self.cache[index]

    def __setitem__(self, index: int, new: mx.array) -> None:
        old = self.cache[index]
        if old is not None and not self._rows.all_active:
            active = self._rows.active.reshape(-1, *[1] * (new.ndim - 1))
            new = mx.where(active, new, old)
        self.cache[index] = new

    def advance(self, n: int) -> None:
        """Do nothing: no row is padded."""

    def make_mask(self, n: int) -> None:
        """Return None: no row is padded."""

    # Coming and going.

    def put(self, row: Row, layer: Any) -> None:
        """Append a sequence's state."""
        for index, new in enumerate(layer.cache):
            old = self.cache[index]
            if row.index == 0:
                self.cache[index] = new
            elif (new is None) != (old is None):
                raise Unsupported("its recurrent state is not complete")
            elif new is not None and old is not None:
                if new.shape[1:] != old.shape[1:] or new.dtype != old.dtype:
                    raise Unsupported("its recurrent state has another shape than the batch's")
                self.cache[index] = mx.concatenate([old, new])

    def shrink(self, count: int) -> None:
        """Drop the rows behind the first ``count``."""
        if not count:  # a part would keep the whole
            self.cache = [None] * len(self.cache)
            return
        self.cache = [None if array is None else array[:count] for array in self.cache]

    def take(self, row: Row) -> Any:
        """Return a copy of a row as the layer cache of a sequence."""
        layer = self._kind(len(self.cache))
        layer.cache = [
            None if array is None else mx.contiguous(array[row.index : row.index + 1])
            for array in self.cache
        ]
        return layer

    def pulled(self, row: Row, last: Row, keeps: bool) -> tuple[Any, Callable[[], object]]:
        """Return a row's layer, if it is wanted, and what gives its place to the last row."""
        cache = [array if last is row else _moved(array, last, row) for array in self.cache]
        return self.take(row) if keeps else None, partial(setattr, self, "cache", cache)

    def can_take_back(self, row: Row, more: int) -> bool:
        """Whether ``more`` further tokens could be dropped again: a state forgets none."""
        return not more

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.cache if array is not None)

    @property
    def arrays(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [array for array in self.cache if array is not None]


class ListRows:
    """A layer that has several caches."""

    def __init__(self, rows: Rows, layer: Any) -> None:
        self._kind = type(layer)
        self.caches = tuple(rows_of(rows, part) for part in layer.caches)

    def __getitem__(self, index: int) -> Any:
        return self.caches[index]

    def put(self, row: Row, layer: Any) -> None:
        """Copy a sequence's layer into a row."""
        for part, own in zip(self.caches, layer.caches, strict=True):
            part.put(row, own)

    def shrink(self, count: int) -> None:
        """Drop the rows behind the first ``count``."""
        for part in self.caches:
            part.shrink(count)

    def take(self, row: Row) -> Any:
        """Return a copy of a row as the layer cache of a sequence."""
        return self._kind(*(part.take(row) for part in self.caches))

    def pulled(self, row: Row, last: Row, keeps: bool) -> tuple[Any, Callable[[], object]]:
        """Return a row's layer, if it is wanted, and what gives its place to the last row."""
        pulled = [part.pulled(row, last, keeps) for part in self.caches]
        layer = self._kind(*(layer for layer, _ in pulled)) if keeps else None
        return layer, lambda: [settle() for _, settle in pulled]

    def can_take_back(self, row: Row, more: int) -> bool:
        """Whether ``more`` further tokens could be dropped again."""
        return all(part.can_take_back(row, more) for part in self.caches)

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in self.caches)

    @property
    def arrays(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [array for part in self.caches for array in part.arrays]


def _moved(array: mx.array | None, source: Row, target: Row) -> mx.array | None:
    """Return a state in which a row is also at the place of another."""
    if array is None:
        return None
    own = array[source.index : source.index + 1]
    return mx.slice_update(array, own, mx.array([target.index]), axes=[0])


_KINDS = {
    "KVCache": KVRows,
    "QuantizedKVCache": QuantizedRows,
    "DequantizedKVCache": DequantizedRows,
    "RotatingKVCache": RotatingRows,
    "ArraysCache": ArrayRows,
    "CacheList": ListRows,
}


def rows_of(rows: Rows, layer: Any) -> Any:
    """Return the batch form of a layer cache, without rows.

    Raises:
        Unsupported: there is none.
    """
    kind = type(layer)
    form = _KINDS.get(kind.__name__)
    if form is None or not kind.__module__.endswith((".models.cache", ".cache.dequantized")):
        raise Unsupported(f"a {kind.__name__} layer has no batch form")
    return form(rows, layer)
