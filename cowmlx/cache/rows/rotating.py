"""Rows of keys and values behind a sliding window."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.cache.rows.key_values import KVRows
from cowmlx.errors import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.cache.rows.positions import Row, Rows


class RotatingRows(KVRows):
    """Keys and values of a layer with a sliding window: a ring of as many columns."""

    def __init__(self, rows: Rows, layer: Any) -> None:
        super().__init__(rows, layer)
        if layer.keep:
            raise Unsupported("its sliding window keeps tokens at the front")
        self.max_size: int = layer.max_size

    def make_mask(
        self, n: int, window_size: int | None = None, return_array: bool = False
    ) -> mx.array | None:
        """Return the mask of one more token a row."""
        if n != 1:
            raise ValueError("behind a sliding window a batch steps one token at a time")
        return self.rows.mask(self.max_size, min(window_size or self.max_size, self.max_size))

    @property
    def ring(self) -> int:
        """Columns after which positions begin again."""
        return self.max_size

    def put(self, row: Row, layer: Any) -> None:
        """Copy a sequence's layer into a row, each token to the column of its position."""
        if layer.max_size != self.max_size:
            raise Unsupported("its sliding window has another size than the batch's")
        super().put(row, layer)

    def take(self, row: Row) -> Any:
        """Return a row as the layer cache of a sequence of its own."""
        layer = super().take(row)
        layer._idx = row.length % self.max_size or min(row.length, self.max_size)
        return layer

    def can_take_back(self, row: Row, more: int) -> bool:
        """Whether ``more`` further tokens could be dropped again: none overwrites another."""
        return row.length + more < self.max_size

    def _parts_of(self, layer: Any) -> list[mx.array]:
        return [self._ring(layer, array) for array in (layer.keys, layer.values)]

    def _layer_of(self, parts: list[mx.array]) -> Any:
        layer = self._kind(self.max_size)
        layer.keys, layer.values = parts
        return layer

    @property
    def _columns(self) -> int:
        return self.max_size

    def _ring(self, layer: Any, array: mx.array) -> mx.array:
        ordered = layer._temporal_order(array)
        held = min(ordered.shape[2], layer.offset, self.max_size)
        ordered = ordered[:, :, ordered.shape[2] - held :]
        first = (layer.offset - held) % self.max_size
        return mx.roll(ordered, first, 2) if first else ordered
