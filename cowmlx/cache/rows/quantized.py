"""Rows of quantised keys and values."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.cache.rows.key_values import KVRows
from cowmlx.errors import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.cache.rows.positions import Rows

_PARTS = 3  # packed numbers, scales and biases


class QuantizedRows(KVRows):
    """Keys and values, each as packed numbers, scales and biases with a buffer of their own.

    Attributes:
        group_size, bits: by these attributes mlx-lm knows which attention to use.
    """

    def __init__(self, rows: Rows, layer: Any) -> None:
        super().__init__(rows, layer)
        self.group_size: int = layer.group_size
        self.bits: int = layer.bits

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Write tokens of every row, (B, H, S, D), and return all that are attended to."""
        parts = self._write([*self._quantized(keys), *self._quantized(values)])
        return tuple(parts[:_PARTS]), tuple(parts[_PARTS:])

    def _quantized(self, array: mx.array) -> Any:
        return mx.quantize(array, group_size=self.group_size, bits=self.bits)

    def _parts_of(self, layer: Any) -> list[mx.array]:
        if (layer.bits, layer.group_size) != (self.bits, self.group_size):
            raise Unsupported("its keys and values are quantised otherwise than the batch's")
        return [array[:, :, : layer.offset] for array in (*layer.keys, *layer.values)]

    def _layer_of(self, parts: list[mx.array]) -> Any:
        layer = self._kind(group_size=self.group_size, bits=self.bits)
        layer.keys, layer.values = tuple(parts[:_PARTS]), tuple(parts[_PARTS:])
        return layer
