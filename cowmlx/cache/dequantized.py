"""Quantized keys and values for an attention that takes them as numbers.

mlx has no attention with quantized keys and values and a soft cap or sinks, and some networks
compute attention themselves. Their layers keep keys and values quantized and get them dequantized,
a layer at a time.
"""

from __future__ import annotations

import mlx.core as mx

from cowmlx.cache.key_values import PackedRows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Parts = tuple[mx.array, mx.array, mx.array]


def _numbers(parts: Parts, packing: tuple[int, int]) -> mx.array:
    bits, group_size = packing
    return mx.dequantize(*parts, group_size=group_size, bits=bits)


class DequantizedKVCache:
    """A ``QuantizedKVCache`` of mlx-lm whose layer gets keys and values dequantized.

    It has no attributes ``bits`` and ``group_size``, by which mlx-lm chooses the attention.

    Attributes:
        packing: (bits, group size).
    """

    def __init__(self, quantized: Any) -> None:
        self._quantized = quantized
        self.packing: tuple[int, int] = (quantized.bits, quantized.group_size)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write tokens (B, H, S, D), and return all that are held."""
        made = self._quantized.update_and_fetch(keys, values)
        return _numbers(made[0], self.packing), _numbers(made[1], self.packing)

    def make_mask(self, *args: Any, **kwargs: Any) -> Any:
        """Return the mask of further tokens."""
        return self._quantized.make_mask(*args, **kwargs)

    @property
    def step(self) -> int:
        """Columns by which buffers grow."""
        return int(self._quantized.step)

    @property
    def keys(self) -> Parts | None:
        """Words, scales and biases; None before the first token."""
        parts: Parts | None = self._quantized.keys
        return parts

    @keys.setter
    def keys(self, parts: Parts | None) -> None:
        self._quantized.keys = parts

    @property
    def values(self) -> Parts | None:
        """Words, scales and biases; None before the first token."""
        parts: Parts | None = self._quantized.values
        return parts

    @values.setter
    def values(self, parts: Parts | None) -> None:
        self._quantized.values = parts

    @property
    def offset(self) -> int:
        """The tokens that are held."""
        return int(self._quantized.offset)

    @offset.setter
    def offset(self, count: int) -> None:
        self._quantized.offset = count

    @property
    def state(self) -> tuple[Any, Any, int]:
        """Keys, values and offset."""
        return self.keys, self.values, self.offset

    @state.setter
    def state(self, state: tuple[Any, Any, int]) -> None:
        self.keys, self.values, self.offset = state

    def is_trimmable(self) -> bool:
        """Whether tokens can be dropped: always."""
        return True

    def trim(self, count: int) -> int:
        """Drop the last tokens, and return how many."""
        return int(self._quantized.trim(count))

    def empty(self) -> bool:
        """Whether it holds nothing."""
        return self.keys is None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self._quantized.nbytes) if self.keys is not None else 0

    def like(self) -> DequantizedKVCache:
        """Return an empty cache of the same kind."""
        bits, group_size = self.packing
        return DequantizedKVCache(type(self._quantized)(group_size=group_size, bits=bits))


class DequantizedRows(PackedRows):
    """The batch form of :class:`DequantizedKVCache`."""

    def __init__(self, rows: Any, layer: DequantizedKVCache) -> None:
        super().__init__(rows, layer, layer.packing)
        self._empty = layer.like()

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write tokens of every row, (B, H, S, D), and return all that are attended to."""
        made = super().update_and_fetch(keys, values)
        return _numbers(made[0], self.packing), _numbers(made[1], self.packing)

    def _packing_of(self, layer: Any) -> tuple[int, int]:
        packing: tuple[int, int] = layer.packing
        return packing

    def _new_layer(self) -> DequantizedKVCache:
        return self._empty.like()
