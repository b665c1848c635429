"""The layer caches of several sequences as one batch, a row each.

Every row stands at a position of its own, so that one that is not stepped simply stays: what a
step computes for it is overwritten by its next. Rows join and leave without a copy of the others.
mlx-lm's batch caches keep all rows at one position instead, padded on the left, and cannot pause.
"""

from __future__ import annotations

import mlx.core as mx

from cowmlx.errors import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BLOCK = 256  # columns by which buffers grow, as mlx-lm's do
MOST_PADDING = 4  # times what its sequences hold that a batch may take up
ROOM = 1024  # columns that any row may have


class Row:
    """A sequence's place in a batch.

    Attributes:
        index: in the batch; changes when others leave.
        length: tokens held.
        active: whether the step under way is one of its own.
    """

    __slots__ = ("active", "index", "length")

    def __init__(self, index: int, length: int) -> None:
        self.index = index
        self.length = length
        self.active = False


class Rows:
    """Where all rows of a batch stand, shared by its layers. Arrays are made once per step."""

    def __init__(self) -> None:
        self.all: list[Row] = []
        self.changed()

    def changed(self) -> None:
        """Forget the arrays: a row has come, gone or moved on."""
        self._positions: mx.array | None = None
        self._active: mx.array | None = None
        self._indices: mx.array | None = None
        self._masks: dict[tuple[int, int], mx.array] = {}
        self.longest = max((row.length for row in self.all), default=0)
        self.level = all(row.length == self.longest for row in self.all)
        self.all_active = all(row.active for row in self.all)

    @property
    def positions(self) -> mx.array:
        """(B,) tokens held."""
        if self._positions is None:
            self._positions = mx.array([row.length for row in self.all], mx.int32)
        return self._positions

    @property
    def active(self) -> mx.array:
        """(B,) whether the step is a row's own."""
        if self._active is None:
            self._active = mx.array([row.active for row in self.all])
        return self._active

    @property
    def indices(self) -> mx.array:
        """(B,) 0, 1, ..."""
        if self._indices is None:
            self._indices = mx.arange(len(self.all))
        return self._indices

    def mask(self, size: int, window: int) -> mx.array:
        """Return (B, 1, 1, C) which columns of a ring of ``size`` a row's next token attends to.

        Args:
            size: columns after which positions begin again.
            window: tokens attended to, the new one included.
        """
        key = size, window
        if key not in self._masks:
            at = self.positions[:, None, None, None]
            columns = mx.arange(min(self.longest + 1, size))
            mask = columns <= at
            if window < size:
                mask = mask & ((at - columns) % size < window)
            self._masks[key] = mask
        return self._masks[key]


class KVRows:
    """Keys and values of one layer: buffers (R, H, C, D), R and C grown in blocks."""

    def __init__(self, rows: Rows, layer: Any) -> None:
        self._rows = rows
        self._kind = type(layer)
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    # What networks use.

    @property
    def offset(self) -> mx.array:
        """(B,) the position of every row's next token."""
        return self._rows.positions

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write a token of every row, (B, H, 1, D), and return all that are attended to."""
        count, end = len(self._rows.all), self._end
        self.keys = self._written(self.keys, keys)
        self.values = self._written(self.values, values)
        return self.keys[:count, :, :end], self.values[:count, :, :end]

    def make_mask(
        self, n: int, window_size: int | None = None, return_array: bool = False
    ) -> mx.array | None:
        """Return the mask of one more token a row; None if every row attends to all columns."""
        if n != 1:
            raise ValueError("a batch steps one token at a time")
        if window_size is None and self._rows.level and not return_array:
            return None
        never = self._rows.longest + 2
        return self._rows.mask(never, min(window_size or never, never))

    # Coming and going.

    def put(self, row: Row, layer: Any) -> None:
        """Copy a sequence's layer into a row."""
        if layer.keys is None or layer.offset != row.length:
            raise Unsupported("its layers hold different numbers of tokens")
        self.keys = self._placed(self.keys, row, layer.keys[..., : row.length, :])
        self.values = self._placed(self.values, row, layer.values[..., : row.length, :])

    def move(self, source: Row, target: int) -> None:
        """Copy a row over another."""
        for buffer in (self.keys, self.values):
            assert buffer is not None
            buffer[target : target + 1] = buffer[source.index : source.index + 1]

    def shrink(self, count: int) -> None:
        """Give memory back once a quarter of the rows is in use, or none."""
        if self.keys is None or self.values is None or 4 * count > self.keys.shape[0]:
            return
        if not count:
            self.keys = self.values = None
            return
        self.keys, self.values = (
            mx.contiguous(buffer[: 2 * count]) for buffer in (self.keys, self.values)
        )

    def take(self, row: Row) -> Any:
        """Return a row as the layer cache of a sequence of its own."""
        layer = self._kind()
        layer.keys, layer.values = (
            mx.contiguous(buffer[row.index : row.index + 1, :, : row.length])
            for buffer in (self.keys, self.values)
            if buffer is not None
        )
        layer.offset = row.length
        return layer

    def can_take_back(self, row: Row, more: int) -> bool:
        """Whether ``more`` further tokens could be dropped again."""
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return sum(buffer.nbytes for buffer in (self.keys, self.values) if buffer is not None)

    @property
    def arrays(self) -> list[mx.array]:
        """What has to be evaluated."""
        return [buffer for buffer in (self.keys, self.values) if buffer is not None]

    @property
    def _end(self) -> int:
        return self._rows.longest + 1

    @property
    def _columns(self) -> int:
        """The most columns there can be."""
        return 1 << 30

    def _written(self, buffer: mx.array | None, new: mx.array) -> mx.array:
        assert buffer is not None
        rows = self._rows
        buffer = self._grown(buffer, buffer.shape[0], self._end)
        if rows.level:
            at = rows.longest % self._columns
            buffer[: len(rows.all), :, at : at + 1] = new
        else:
            buffer[rows.indices, :, rows.positions % self._columns] = new[:, :, 0]
        return buffer

    def _placed(self, buffer: mx.array | None, row: Row, new: mx.array) -> mx.array:
        """Write (1, H, S, D) into the first columns of a row.

        The others become zeros: a mask leaves them out, but not a NaN that another row left.
        """
        _, heads, length, width = new.shape
        if buffer is None:
            buffer = mx.zeros((0, heads, 0, width), new.dtype)
        if buffer.shape[1] != heads or buffer.shape[3] != width or buffer.dtype != new.dtype:
            raise Unsupported("its keys and values have another shape than the batch's")
        buffer = self._grown(buffer, row.index + 1, length + 1)
        rest = buffer.shape[2] - length
        buffer[row.index : row.index + 1] = mx.pad(new, [(0, 0), (0, 0), (0, rest), (0, 0)])
        return buffer

    def _grown(self, buffer: mx.array, rows: int, columns: int) -> mx.array:
        """Return a buffer with room for so many rows (doubled) and columns (in blocks)."""
        have_rows, _, have_columns, _ = buffer.shape
        more_rows = max(rows, 2 * have_rows, 2) - have_rows if rows > have_rows else 0
        wanted = min(-(-columns // BLOCK) * BLOCK, self._columns)
        more_columns = max(0, wanted - have_columns)
        if not more_rows and not more_columns:
            return buffer
        return mx.pad(buffer, [(0, more_rows), (0, 0), (0, more_columns), (0, 0)])


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
            raise ValueError("a batch steps one token at a time")
        return self._rows.mask(self.max_size, min(window_size or self.max_size, self.max_size))

    def put(self, row: Row, layer: Any) -> None:
        """Copy a sequence's layer into a row, each token to the column of its position."""
        if layer.keys is None or layer.offset != row.length or layer.max_size != self.max_size:
            raise Unsupported("its layers hold different numbers of tokens")
        self.keys = self._placed(self.keys, row, self._ring(layer, layer.keys))
        self.values = self._placed(self.values, row, self._ring(layer, layer.values))

    def take(self, row: Row) -> Any:
        """Return a row as the layer cache of a sequence of its own."""
        held = min(row.length, self.max_size)
        layer = self._kind(self.max_size)
        layer.keys, layer.values = (
            mx.contiguous(buffer[row.index : row.index + 1, :, :held])
            for buffer in (self.keys, self.values)
            if buffer is not None
        )
        layer.offset = row.length
        layer._idx = row.length % self.max_size or held
        return layer

    def can_take_back(self, row: Row, more: int) -> bool:
        """Whether ``more`` further tokens could be dropped again: none overwrites another."""
        return row.length + more < self.max_size

    @property
    def _end(self) -> int:
        return min(self._rows.longest + 1, self.max_size)

    @property
    def _columns(self) -> int:
        return self.max_size

    def _ring(self, layer: Any, array: mx.array) -> mx.array:
        ordered = layer._temporal_order(array)
        held = min(ordered.shape[2], layer.offset, self.max_size)
        ordered = ordered[:, :, ordered.shape[2] - held :]
        first = (layer.offset - held) % self.max_size
        return mx.roll(ordered, first, 2) if first else ordered


class ArrayRows:
    """The state of a recurrence: arrays (B, ...), as few as there are rows."""

    def __init__(self, rows: Rows, layer: Any) -> None:
        self._rows = rows
        self._kind = type(layer)
        self.cache: list[mx.array | None] = [None] * len(layer.cache)
        self.left_padding = self.lengths = None

    # What networks use.

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

    def move(self, source: Row, target: int) -> None:
        """Copy a row over another."""
        for array in self.cache:
            if array is not None:
                array[target : target + 1] = array[source.index : source.index + 1]

    def shrink(self, count: int) -> None:
        """Drop the rows behind the first ``count``."""
        self.cache = [None if array is None else array[:count] for array in self.cache]

    def take(self, row: Row) -> Any:
        """Return a row as the layer cache of a sequence of its own."""
        layer = self._kind(len(self.cache))
        layer.cache = [
            None if array is None else mx.contiguous(array[row.index : row.index + 1])
            for array in self.cache
        ]
        return layer

    def can_take_back(self, row: Row, more: int) -> bool:
        """Whether ``more`` further tokens could be dropped again: a state forgets none."""
        return not more

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.cache if array is not None)

    @property
    def arrays(self) -> list[mx.array]:
        """What has to be evaluated."""
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


class Batch:
    """Several sequences' layers, for a network to step at once.

    Args:
        layers: empty ones of a sequence, whose batch forms these are.
        stream: that rows come and go on, whoever asks for it.
    """

    def __init__(self, layers: list[Any], stream: mx.Stream) -> None:
        self.rows = Rows()
        self._stream = stream
        self.layers = [rows_of(self.rows, layer) for layer in layers]

    def has_place(self, length: int) -> bool:
        """Whether a sequence of so many tokens is like enough to the others in length.

        Every row has as many columns as the longest needs.
        """
        lengths = [row.length for row in self.rows.all] + [length]
        return max(lengths) * len(lengths) <= MOST_PADDING * sum(lengths) + ROOM * len(lengths)

    def join(self, layers: list[Any], length: int) -> Row:
        """Copy a sequence of ``length`` tokens into a new row.

        Raises:
            Unsupported: it does not fit the others; nothing has changed.
        """
        row = Row(len(self.rows.all), length)
        try:
            with mx.stream(self._stream):
                for form, layer in zip(self.layers, layers, strict=True):
                    form.put(row, layer)
        except BaseException:
            self._shrink()
            raise
        self.rows.all.append(row)
        self.rows.changed()
        return row

    def take(self, row: Row) -> list[Any]:
        """Return a row's layers as those of a sequence of its own."""
        with mx.stream(self._stream):
            layers = [form.take(row) for form in self.layers]
        mx.async_eval([layer.state for layer in layers])  # or they keep all rows alive
        return layers

    def leave(self, row: Row) -> None:
        """Give up a row; the last one takes its place."""
        last = self.rows.all[-1]
        with mx.stream(self._stream):
            if last is not row:
                for form in self.layers:
                    form.move(last, row.index)
                last.index = row.index
                self.rows.all[row.index] = last
            self.rows.all.pop()
            self._shrink()
        self.rows.changed()

    def _shrink(self) -> None:
        for form in self.layers:
            form.shrink(len(self.rows.all))

    def begin_step(self, active: list[Row]) -> None:
        """Say which rows the next forward pass is for."""
        chosen = set(map(id, active))
        for row in self.rows.all:
            row.active = id(row) in chosen
        self.rows.changed()

    def end_step(self) -> None:
        """Let the active rows hold the token that was fed."""
        for row in self.rows.all:
            row.length += row.active
        self.rows.changed()

    def can_take_back(self, row: Row, more: int) -> bool:
        """Whether ``more`` further tokens of a row could be dropped again."""
        return all(form.can_take_back(row, more) for form in self.layers)

    def nbytes_of(self, row: Row) -> int:
        """Return the bytes that a row has a part in, shared out evenly."""
        return sum(form.nbytes for form in self.layers) // max(1, len(self.rows.all))

    @property
    def arrays(self) -> list[mx.array]:
        """What has to be evaluated."""
        return [array for form in self.layers for array in form.arrays]
