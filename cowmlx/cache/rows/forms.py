"""Which form a layer cache has in a batch."""

from __future__ import annotations

from cowmlx.cache.rows.key_values import KVRows
from cowmlx.cache.rows.quantized import QuantizedRows
from cowmlx.cache.rows.recurrent import ArrayRows
from cowmlx.cache.rows.rotating import RotatingRows
from cowmlx.errors import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import mlx.core as mx

    from cowmlx.cache.rows.positions import Row, Rows


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

    def move(self, source: Row, target: int) -> None:
        """Copy a row over another."""
        for part in self.caches:
            part.move(source, target)

    def shrink(self, count: int) -> None:
        """Drop the rows behind the first ``count``."""
        for part in self.caches:
            part.shrink(count)

    def take(self, row: Row) -> Any:
        """Return a row as the layer cache of a sequence of its own."""
        return self._kind(*(part.take(row) for part in self.caches))

    def can_take_back(self, row: Row, more: int) -> bool:
        """Whether ``more`` further tokens could be dropped again."""
        return all(part.can_take_back(row, more) for part in self.caches)

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in self.caches)

    @property
    def arrays(self) -> list[mx.array]:
        """What has to be evaluated."""
        return [array for part in self.caches for array in part.arrays]


_KINDS = {
    "KVCache": KVRows,
    "QuantizedKVCache": QuantizedRows,
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
    if form is None or not kind.__module__.endswith(".models.cache"):
        raise Unsupported(f"a {kind.__name__} layer has no batch form")
    return form(rows, layer)
