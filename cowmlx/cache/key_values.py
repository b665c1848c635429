"""Rows of keys and values: in full, quantized, or behind a sliding window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.errors import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.cache.batch import Row, Rows


BLOCK = 256  # columns by which buffers grow, as mlx-lm's do


class KVRows:
    """Keys and values of one layer: buffers (R, H, C, D), R and C grown in blocks.

    Attributes:
        rows: the positions.
        buffers: the parts of keys, then of values; none without rows.
    """

    def __init__(self, rows: Rows, layer: Any) -> None:
        self.rows = rows
        self._kind = type(layer)
        self.buffers: list[mx.array] = []

    # For networks.

    @property
    def offset(self) -> mx.array:
        """(B,) the position of every row's next token."""
        return self.rows.positions

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Write tokens of every row, (B, H, S, D), and return all that are attended to."""
        keys, values = self._write([keys, values])
        return keys, values

    def make_mask(
        self, n: int, window_size: int | None = None, return_array: bool = False
    ) -> mx.array | None:
        """Return the mask of n more tokens a row; None if every row attends to all columns."""
        if n != self.rows.width:
            raise ValueError(f"this step of a batch has {self.rows.width} tokens a row, not {n}")
        if n == 1 and window_size is None and self.rows.level and not return_array:
            return None
        never = self.rows.longest + n + 1
        return self.rows.mask(never, min(window_size or never, never))

    # For pipelines, which order their messages by it.

    @property
    def keys(self) -> mx.array:
        """The first part of the buffers."""
        return self.buffers[0]

    @keys.setter
    def keys(self, keys: mx.array) -> None:
        self.buffers[0] = keys

    # For fused layers.

    @property
    def ring(self) -> int:
        """Columns of the ring; 0: none."""
        return 0

    def room(self, empty: list[mx.array]) -> list[mx.array]:
        """Return the buffers, with columns for the tokens of a step in every row.

        Args:
            empty: buffers without rows, if there are none yet.
        """
        end = min(self.rows.longest + self.rows.width, self._columns)
        return self._grown(self.buffers or empty, len(self.rows.all), end)

    # Coming and going.

    def put(self, row: Row, layer: Any) -> None:
        """Copy a sequence's layer into a row."""
        if type(layer) is not self._kind:
            raise Unsupported("its cache is of another kind than the batch's")
        if layer.offset != row.length:
            raise Unsupported("its layers hold different numbers of tokens")
        if layer.keys is None:
            self._clear(row)
            return
        parts = self._parts_of(layer)
        self.buffers = self._placed(self.buffers or [_empty(part) for part in parts], row, parts)

    def move(self, source: Row, target: int) -> None:
        """Copy a row over another."""
        for buffer in self.buffers:
            buffer[target : target + 1] = buffer[source.index : source.index + 1]

    def shrink(self, count: int) -> None:
        """Give memory back once a quarter of the rows is in use, or none."""
        if not self.buffers or 4 * count > self.buffers[0].shape[0]:
            return
        columns = self.buffers[0].shape[2]
        self.buffers = self._sized(self.buffers, 2 * count, columns) if count else []

    def take(self, row: Row) -> Any:
        """Return a copy of a row as the layer cache of a sequence."""
        held = min(row.length, self._columns)
        return self._layer_with(
            row,
            [mx.contiguous(buffer[row.index : row.index + 1, :, :held]) for buffer in self.buffers],
        )

    def pulled(self, row: Row, last: Row, keeps: bool) -> tuple[Any, Callable[[], object]]:
        """Return a row's layer, and what gives its place to the last row.

        Args:
            row: that leaves.
            last: the last one.
            keeps: whether the layer is wanted; else it is None.
        """
        if not self.buffers:
            return self._layer_with(row, []) if keeps else None, _nothing
        if max(row.index, last.index) >= self.buffers[0].shape[0]:  # it holds no tokens
            self.buffers = self._grown(self.buffers, len(self.rows.all), 0)
        if not kernels.usable():
            layer = self.take(row) if keeps else None
            return layer, _nothing if last is row else partial(self.move, last, row.index)
        if last is row and not keeps:
            return None, _nothing
        held, kept = (min(each.length, self._columns) for each in (row, last))
        taken = held if keeps else -1
        buffers, parts = kernels.module().take_row(self.buffers, row.index, taken, last.index, kept)
        layer = self._layer_with(row, parts) if keeps else None
        return layer, partial(setattr, self, "buffers", buffers)

    def can_take_back(self, row: Row, more: int) -> bool:
        """Whether ``more`` further tokens could be dropped again: always, of this kind."""
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return sum(buffer.nbytes for buffer in self.buffers)

    @property
    def arrays(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return list(self.buffers)

    # For other kinds.

    def _parts_of(self, layer: Any) -> list[mx.array]:
        """Return the used part of a sequence's layer for each buffer, (1, H, S, D)."""
        return [array[:, :, : layer.offset] for array in (layer.keys, layer.values)]

    def _layer_with(self, row: Row, parts: list[mx.array]) -> Any:
        """Return a row's layer with its parts; none: it holds no tokens."""
        layer = self._layer_of(parts) if parts else self._new_layer()
        layer.offset = row.length
        return layer

    def _layer_of(self, parts: list[mx.array]) -> Any:
        """Return a sequence's layer with these parts."""
        layer = self._new_layer()
        layer.keys, layer.values = parts
        return layer

    def _new_layer(self) -> Any:
        """Return a sequence's layer without tokens."""
        return self._kind()

    @property
    def _columns(self) -> int:
        """The most columns there can be."""
        return 1 << 30

    # Buffers.

    def _write(self, new: list[mx.array]) -> list[mx.array]:
        """Write (B, H, S, D) into every buffer, and return the attended part of each."""
        end = min(self.rows.longest + new[0].shape[2], self._columns)
        buffers = self.buffers or [_empty(array) for array in new]
        self.buffers = self._grown(buffers, len(self.rows.all), end)
        for buffer, array in zip(self.buffers, new, strict=True):
            self._put_tokens(buffer, array)
        return [buffer[: len(self.rows.all), :, :end] for buffer in self.buffers]

    def _put_tokens(self, buffer: mx.array, new: mx.array) -> None:
        rows, count = self.rows, new.shape[2]
        if rows.level:
            at = rows.longest % self._columns
            buffer[: len(rows.all), :, at : at + count] = new
        elif count == 1:
            buffer[rows.indices, :, rows.positions % self._columns] = new[:, :, 0]
        else:
            columns = rows.positions[:, None] + mx.arange(count)
            buffer[rows.indices[:, None], :, columns] = new.swapaxes(1, 2)

    def _clear(self, row: Row) -> None:
        """Clear a row of another one's numbers: a mask hides all but NaN."""
        for buffer in self.buffers:
            if row.index < buffer.shape[0]:
                buffer[row.index : row.index + 1] = mx.zeros((), buffer.dtype)

    def _placed(self, buffers: list[mx.array], row: Row, parts: list[mx.array]) -> list[mx.array]:
        """Write (1, H, S, D) into the first columns of a row, and zeros into the others.

        Raises:
            Unsupported: the parts have other shapes or types than the buffers' rows.
        """
        for buffer, new in zip(buffers, parts, strict=True):
            _, heads, _, width = new.shape
            if buffer.shape[1] != heads or buffer.shape[3] != width or buffer.dtype != new.dtype:
                raise Unsupported("its keys and values have another shape than the batch's")
        length = parts[0].shape[2]
        if kernels.usable():
            rows, columns = self._size(buffers[0], row.index + 1, length + 1)
            used = min(self._held, buffers[0].shape[2])
            placed: list[mx.array] = kernels.module().put_row(
                buffers, parts, row.index, rows, columns, used
            )
            return placed
        grown = self._grown(buffers, row.index + 1, length + 1)
        for buffer, new in zip(grown, parts, strict=True):
            rest = buffer.shape[2] - length
            buffer[row.index : row.index + 1] = mx.pad(new, [(0, 0), (0, 0), (0, rest), (0, 0)])
        return grown

    def _grown(self, buffers: list[mx.array], rows: int, columns: int) -> list[mx.array]:
        """Return the buffers with room for so many rows (doubled) and columns (in blocks)."""
        have_rows, _, have_columns, _ = buffers[0].shape
        rows, columns = self._size(buffers[0], rows, columns)
        if (rows, columns) == (have_rows, have_columns):
            return list(buffers)
        return self._sized(buffers, rows, columns)

    def _sized(self, buffers: list[mx.array], rows: int, columns: int) -> list[mx.array]:
        """Return the buffers with so many rows and, at least as many as they have, columns."""
        have_rows, _, have_columns, _ = buffers[0].shape
        if kernels.usable():
            used = min(self._held, have_columns)
            sized: list[mx.array] = kernels.module().put_row(buffers, [], -1, rows, columns, used)
            return sized
        more = [(0, max(0, rows - have_rows)), (0, 0), (0, columns - have_columns), (0, 0)]
        return [mx.contiguous(mx.pad(buffer[:rows], more)) for buffer in buffers]

    def _size(self, buffer: mx.array, rows: int, columns: int) -> tuple[int, int]:
        """Return the rows and columns of a buffer that has room for so many."""
        have_rows, _, have_columns, _ = buffer.shape
        if rows > have_rows:
            have_rows = max(rows, self.rows.expected, 2 * have_rows, 2)
        return have_rows, max(have_columns, min(-(-columns // BLOCK) * BLOCK, self._columns))

    @property
    def _held(self) -> int:
        """Columns of the rows that hold tokens."""
        return min(self.rows.longest, self._columns)


def _nothing() -> None:
    """Do nothing."""


def _empty(part: mx.array) -> mx.array:
    """Return a buffer for arrays like (1, H, S, D), without rows and columns."""
    _, heads, _, width = part.shape
    return mx.zeros((0, heads, 0, width), part.dtype)


_PARTS = 3  # packed numbers, scales and biases


class PackedRows(KVRows, ABC):
    """Keys and values, each as packed numbers, scales and biases in separate buffers.

    Attributes:
        packing: (bits, group size).
    """

    def __init__(self, rows: Rows, layer: Any, packing: tuple[int, int]) -> None:
        super().__init__(rows, layer)
        self.packing = packing

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Write tokens of every row, (B, H, S, D), and return all that are attended to."""
        parts = self._write([*self._quantized(keys), *self._quantized(values)])
        return tuple(parts[:_PARTS]), tuple(parts[_PARTS:])

    def _quantized(self, array: mx.array) -> Any:
        bits, group_size = self.packing
        return mx.quantize(array, group_size=group_size, bits=bits)

    def _parts_of(self, layer: Any) -> list[mx.array]:
        if self._packing_of(layer) != self.packing:
            raise Unsupported("its keys and values are quantized otherwise than the batch's")
        return [array[:, :, : layer.offset] for array in (*layer.keys, *layer.values)]

    def _layer_of(self, parts: list[mx.array]) -> Any:
        layer = self._new_layer()
        layer.keys, layer.values = tuple(parts[:_PARTS]), tuple(parts[_PARTS:])
        return layer

    # For both kinds.

    @abstractmethod
    def _packing_of(self, layer: Any) -> tuple[int, int]: ...


class QuantizedRows(PackedRows):
    """The batch form of mlx-lm's ``QuantizedKVCache``.

    Attributes:
        group_size, bits: attributes by which mlx-lm chooses the attention.
    """

    def __init__(self, rows: Rows, layer: Any) -> None:
        super().__init__(rows, layer, self._packing_of(layer))
        self.bits, self.group_size = self.packing

    def _packing_of(self, layer: Any) -> tuple[int, int]:
        return layer.bits, layer.group_size

    def _new_layer(self) -> Any:
        return self._kind(group_size=self.group_size, bits=self.bits)


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

    def _layer_with(self, row: Row, parts: list[mx.array]) -> Any:
        layer = super()._layer_with(row, parts)
        layer._idx = row.length % self.max_size or min(row.length, self.max_size)
        return layer

    def can_take_back(self, row: Row, more: int) -> bool:
        """Whether ``more`` further tokens could be dropped again: none may overwrite another."""
        return row.length + more < self.max_size

    def _parts_of(self, layer: Any) -> list[mx.array]:
        return [self._ring(layer, array) for array in (layer.keys, layer.values)]

    def _new_layer(self) -> Any:
        return self._kind(self.max_size)

    @property
    def _columns(self) -> int:
        return self.max_size

    def _ring(self, layer: Any, array: mx.array) -> mx.array:
        ordered = layer._temporal_order(array)
        held = min(ordered.shape[2], layer.offset, self.max_size)
        ordered = ordered[:, :, ordered.shape[2] - held :]
        first = (layer.offset - held) % self.max_size
        return mx.roll(ordered, first, 2) if first else ordered
