"""The streams on which arrays and programs are computed, and what long work is under way there."""

from __future__ import annotations

from contextlib import suppress

import mlx.core as mx

from cowmlx.errors import OutOfMemory
from cowmlx.services.computing import Computation, ComputingCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.services.runtime import Runtime

MAX_LEFT = 4
"""Streams that compute what nobody waits for any more, beside the one that is used."""


class ArrayStreams:
    """Hands out the stream of arrays: one, as long as nobody has left long work behind on it.

    Args:
        runtime: has the streams.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._current: mx.Stream | None = None
        self._computing: list[ArrayWork] = []
        # Streams with work that nobody waits for, and for each an array that is computed after it.
        self._left: list[tuple[mx.Stream, Computation]] = []

    @property
    def current(self) -> mx.Stream:
        """Where new work is computed."""
        if self._current is None:
            self._current = self._runtime.streams.take()
        return self._current

    def begin(self, unit: ArrayWork) -> None:
        """Note that a unit has begun a computation."""
        if unit not in self._computing:
            self._computing.append(unit)

    def end(self, unit: ArrayWork) -> None:
        """Note that a unit has ended; what it still computes is left behind."""
        if unit not in self._computing:
            return
        if unit.is_computing:
            self._leave(unit.stream)
        self._computing.remove(unit)

    def ahead_of(self, unit: ArrayWork | None) -> Computation | None:
        """Return what others compute on the current stream; None if there is nothing."""
        if self._left:
            self._prune()
            for stream, mark in self._left:
                if stream == self._current:
                    return mark
        for each in self._computing:
            if each is not unit and each.stream == self._current:
                computing = each.computing
                if computing is not None:
                    return computing
        return None

    def stop(self) -> None:
        """Give all streams back."""
        self._computing.clear()
        streams = [stream for stream, _ in self._left if stream != self._current]
        self._left.clear()
        if self._current is not None:
            streams.append(self._current)
            self._current = None
        for stream in streams:
            self._runtime.streams.give_back(stream)

    def _leave(self, stream: mx.Stream) -> None:
        """Compute elsewhere from now on: nobody waits for what is computed on a stream."""
        if stream != self._current:
            return
        self._prune()
        mark = Computation([mx.zeros((), stream=stream)])
        mark.advance()
        self._left = [each for each in self._left if each[0] != stream]
        if len(self._left) < MAX_LEFT:
            with suppress(OutOfMemory):  # without a new stream, later work waits for this one
                self._current = self._runtime.streams.take()
        self._left.append((stream, mark))

    def _prune(self) -> None:
        """Let streams that were left be used again once all is computed there."""
        for left in [each for each in self._left if each[1].advance()]:
            self._left.remove(left)
            if left[0] != self._current:
                self._runtime.streams.give_back(left[0])


class ArrayWork(ComputingCall):
    """Work on the stream of arrays, which has no turn while others' work is computed there.

    Otherwise the dispatch thread, which waits for what is short, would wait for that, too.

    Args:
        call: ends with the work.
        steps: does it.
        streams: has the stream.
        subject: what the work is on.
    """

    def __init__(
        self, call: Any, steps: Any, streams: ArrayStreams, subject: object = None
    ) -> None:
        super().__init__(call, steps, streams.current, subject)
        self._streams = streams

    @property
    def stream(self) -> mx.Stream:
        """Where the last step has computed."""
        return self._stream

    def _awaited(self) -> Computation | None:
        return self.computing or self._streams.ahead_of(self)

    def _may_step(self) -> bool:
        if not super()._may_step():
            return False
        self._stream = self._streams.current
        return True

    def _tell(self, told: list[mx.array] | None) -> bool | None:
        if told:
            self._streams.begin(self)
        return super()._tell(told)

    def _release(self) -> None:
        self._streams.end(self)
        super()._release()
