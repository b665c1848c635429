"""Where the rows of a batch stand: what all of its layers share."""

from __future__ import annotations

import mlx.core as mx


class Row:
    """A sequence's place in a batch.

    Attributes:
        index: in the batch; changes when others leave.
        length: tokens held.
        active: whether the step under way is one of its own.
        count: tokens that it feeds in the step under way.
        missed: steps of the batch since one was its own.
    """

    __slots__ = ("active", "count", "index", "length", "missed")

    def __init__(self, index: int, length: int) -> None:
        self.index = index
        self.length = length
        self.active = False
        self.count = 0
        self.missed = 0


class Rows:
    """Where all rows of a batch stand, shared by its layers.

    What is asked for is found out once per step: fused layers look at the rows themselves.

    Attributes:
        width: tokens that every row is given in the step under way. What is behind a row's own
            count is written, too, and overwritten by its next step.
    """

    def __init__(self) -> None:
        self.all: list[Row] = []
        self.width = 1
        self.changed()

    def changed(self) -> None:
        """Forget the arrays: a row has come, gone or moved on."""
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
        """Whether all rows hold as many tokens."""
        if self._level is None:
            self._level = all(row.length == self.longest for row in self.all)
        return self._level

    @property
    def all_active(self) -> bool:
        """Whether the step is every row's own."""
        return all(row.active for row in self.all)

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
        """Return (B, 1, S, C) which columns of a ring of ``size`` a row's next tokens attend to.

        Args:
            size: columns after which positions begin again; with several tokens, more than any
                row has.
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
