"""The layer caches of several sequences as one batch, a row each.

Each row has a separate position, so that rows can pause: a step's results for them are overwritten
by their next step. Rows join and leave without a copy of the others. mlx-lm's batch caches instead
keep all rows at one position, padded on the left, and cannot pause.
"""

from __future__ import annotations

import mlx.core as mx

from cowmlx.cache.key_values import KVRows
from cowmlx.cache.rows import rows_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


MAX_PADDING = 4  # the size of a batch, at most, as a multiple of its sequences'
ROOM = 1024  # columns that every row may have besides


class Batch:
    """The layers of several sequences, for a network to step at once.

    Args:
        layers: empty ones of a sequence, whose batch forms these are.
        stream: on which rows are copied.
    """

    def __init__(self, layers: list[Any], stream: mx.Stream) -> None:
        self.rows = Rows()
        self._stream = stream
        self.layers = [rows_of(self.rows, layer) for layer in layers]
        # Called for every token of every row.
        self._asked = [
            form
            for form in self.layers
            if getattr(type(form), "can_take_back", None) is not KVRows.can_take_back
        ]

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
        self.rows.add(row)
        return row

    def take(self, row: Row) -> list[Any]:
        """Return a copy of a row's layers as those of a sequence."""
        with mx.stream(self._stream):
            layers = [form.take(row) for form in self.layers]
        mx.async_eval([layer.state for layer in layers])  # or they keep all rows alive
        return layers

    def give_up(self, row: Row) -> list[Any]:
        """Return a row's layers as those of a sequence; the last row takes its place.

        The layers keep all rows alive until they are computed.
        """
        return self._removed(row, keeps=True)

    def leave(self, row: Row) -> None:
        """Drop a row, unless it was given up; the last one takes its place."""
        if row in self.rows.all:
            self._removed(row, keeps=False)

    def _removed(self, row: Row, *, keeps: bool) -> list[Any]:
        last = self.rows.all[-1]
        with mx.stream(self._stream):
            pulled = [form.pulled(row, last, keeps) for form in self.layers]
            for _, settle in pulled:
                settle()
            self.rows.remove(row)
            self._shrink()
        return [layer for layer, _ in pulled]

    def _shrink(self) -> None:
        for form in self.layers:
            form.shrink(len(self.rows.all))

    def begin_step(self, active: list[Row], counts: list[int] | None = None) -> None:
        """Set the rows of the next forward pass.

        Args:
            active: those rows.
            counts: tokens that each is fed, one by default; padding follows them.
        """
        for row in self.rows.all:
            row.count = 0
            row.active = False
            row.missed += 1
        width = 1
        for row, count in zip(active, counts or [1] * len(active), strict=True):
            if count:
                row.count = count
                row.active = True
                row.missed = 0
                width = max(width, count)
        self.rows.width = width
        self.rows.changed()

    def end_step(self) -> None:
        """Let the active rows hold their new tokens."""
        for row in self.rows.all:
            row.length += row.count
            row.count = 0
        self.rows.width = 1
        self.rows.changed()

    def shift(self, row: Row, by: int) -> None:
        """Set a row's shift: positions of its next tokens are their places plus ``by``."""
        row.shift = by
        self.rows.note_shifts()

    def can_take_back(self, row: Row, more: int) -> bool:
        """Whether ``more`` further tokens of a row could be dropped again."""
        return not self._asked or all(form.can_take_back(row, more) for form in self._asked)

    def drop(self, row: Row, count: int) -> bool:
        """Drop the last tokens of a row, between steps; false if its layers cannot."""
        if not self.can_take_back(row, 1):
            return False
        row.length -= count
        self.rows.changed()
        return True

    def nbytes_of(self, row: Row) -> int:
        """Return a row's even share of the bytes."""
        return sum(form.nbytes for form in self.layers) // max(1, len(self.rows.all))

    @property
    def arrays(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [array for form in self.layers for array in form.arrays]


class Row:
    """A sequence's place in a batch.

    Attributes:
        index: in the batch; changes when others leave.
        length: tokens held.
        active: whether it takes part in the step under way.
        count: tokens that it feeds there.
        missed: steps of the batch since its last one.
        shift: what is added to the place of its next token to get its position.
    """

    __slots__ = ("active", "count", "index", "length", "missed", "shift")

    def __init__(self, index: int, length: int) -> None:
        self.index = index
        self.length = length
        self.active = False
        self.count = 0
        self.missed = 0
        self.shift = 0


class Rows:
    """The positions of a batch's rows, shared by its layers.

    Arrays are made once per step, when used: fused layers read the rows themselves.

    Attributes:
        expected: rows that there will soon be; 0: no more than there are.
        width: tokens of every row in the step under way. Padding behind a row's count is written,
            too, and overwritten by its next step.
        shifts: those of all rows; None: all are 0.
    """

    def __init__(self) -> None:
        self.all: list[Any] = []
        self.shifts: list[int] | None = None
        self.expected = 0
        self.width = 1
        self.changed()

    def has_place(self, length: int) -> bool:
        """Whether a sequence of so many tokens may join: all rows get the longest's columns."""
        lengths = [*(row.length for row in self.all), length]
        return max(lengths) * len(lengths) <= MAX_PADDING * sum(lengths) + ROOM * len(lengths)

    def add(self, row: Row) -> None:
        """Append a row."""
        self.all.append(row)
        self.note_shifts()
        self.changed()

    def remove(self, row: Row) -> None:
        """Remove a row; the last one takes its place."""
        last = self.all.pop()
        if last is not row:
            last.index = row.index
            self.all[row.index] = last
        self.note_shifts()
        self.changed()

    def note_shifts(self) -> None:
        """Forget what was computed for earlier rows or shifts."""
        own = [row.shift for row in self.all]
        self.shifts = own if any(own) else None

    def changed(self) -> None:
        """Forget the arrays: a row has joined, left or moved on."""
        self._positions: mx.array | None = None
        self._active: mx.array | None = None
        self._indices: mx.array | None = None
        self._masks: dict[tuple[int, int], mx.array] = {}
        self._longest: int | None = None
        self._level: bool | None = None

    @property
    def longest(self) -> int:
        """The most tokens that a row holds."""
        if self._longest is None:
            self._longest = max((row.length for row in self.all), default=0)
        return self._longest

    @property
    def level(self) -> bool:
        """Whether all rows hold the same number of tokens."""
        if self._level is None:
            self._level = all(row.length == self.longest for row in self.all)
        return self._level

    @property
    def all_active(self) -> bool:
        """Whether all rows take part in the step."""
        return all(row.active for row in self.all)

    @property
    def positions(self) -> mx.array:
        """(B,) tokens held."""
        if self._positions is None:
            self._positions = mx.array([row.length for row in self.all], mx.int32)
        return self._positions

    @property
    def active(self) -> mx.array:
        """(B,) whether a row takes part in the step."""
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
        """Return (B, 1, S, C) which columns of a ring of ``size`` a row's next tokens attend to.

        Args:
            size: columns of the ring; with several tokens, more than any row has.
            window: tokens attended to, the new one included.
        """
        key = size, window
        if key not in self._masks:
            at = self.positions[:, None, None, None] + mx.arange(self.width)[:, None]
            columns = mx.arange(min(self.longest + self.width, size))
            mask = columns <= at
            if window < size:
                mask = mask & ((at - columns) % size < window)
            self._masks[key] = mask
        return self._masks[key]
