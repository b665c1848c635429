"""Work that waits for what mlx computes, while others have their turns, and its streams."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.errors import OutOfMemory
from cowmlx.scheduling.stepped import SteppedCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cowmlx.services.runtime import Runtime


_STARTING = 5e-4
"""Seconds that a turn takes in which parts of a computation were started."""


def is_computed(arrays: Sequence[mx.array]) -> bool:
    """Whether arrays have their elements; also if that cannot be known without waiting."""
    if not kernels.available():
        return True
    found: bool = kernels.module().available(arrays)
    return found


class Computation:
    """Arrays that mlx computes in parts, so that no call of mlx waits for another part.

    ``mx.async_eval`` of a long graph waits for most of it. Without kernels all is computed at once.

    Args:
        arrays: the arrays, which may be lazy.

    Attributes:
        error: why they cannot be computed.
    """

    def __init__(self, arrays: Sequence[mx.array]) -> None:
        self.error: Exception | None = None
        self._arrays = list(arrays)
        self._evaluation: Any = None
        if kernels.available():
            self._evaluation = kernels.module().Evaluation(self._arrays)

    def advance(self, waits: bool = False) -> bool:
        """Start the parts for which there is room; return whether all is computed, or failed.

        Args:
            waits: whether to wait some milliseconds for what was started.
        """
        if not self._arrays:
            return True
        try:
            if self._evaluation is None:
                mx.eval(self._arrays)
            elif not self._evaluation.advance(waits):
                return False
        except Exception as error:
            self.error = error
        self._arrays.clear()
        self._evaluation = None
        return True


class ComputingCall(SteppedCall):
    """Steps that yield arrays, and go on once these are computed.

    Operations are lazy, so an array may take any time: a read of the last result of many computes
    all of them. The dispatch thread must not wait for that.
    """

    _computation: Computation | None = None
    _error: Exception | None = None

    @property
    def is_computing(self) -> bool:
        """Whether what the last step needs may still be computed."""
        return self._computation is not None

    @property
    def computing(self) -> Computation | None:
        """What the last step needs; None if that is computed."""
        if self._computation is not None and self._computation.advance():
            self._error = self._computation.error
            self._computation = None
        return self._computation

    def _turn(self) -> bool:
        began = perf_counter()
        return super()._turn() or perf_counter() - began > _STARTING

    def _awaited(self) -> Computation | None:
        """Return what has to be computed before the next turn, or None."""
        return self.computing

    def _may_step(self) -> bool:
        if self._awaited() is not None:
            return False
        if self._error is not None:
            raise self._error
        return True

    def block(self) -> bool:
        """Wait a short time for what is computed, and go on if it is there."""
        awaited = self._awaited()
        if awaited is not None and not awaited.advance(waits=True):
            return True  # requests are heard in between, a cancel among them
        return self.turn()  # also for what was computed since the last turn

    def _tell(self, told: list[mx.array] | None) -> bool | None:
        if told:
            self._computation = Computation(told)
            self._computation.advance()
        return None

    def _release(self) -> None:
        self._computation = None


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
