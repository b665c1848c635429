"""The streams on which arrays and programs are computed, and what long work is under way there."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter, sleep

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.errors import OutOfMemory
from cowmlx.scheduling.stepped import SteppedCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cowmlx.services.runtime import Runtime

MAX_LEFT = 4
"""Streams that compute what nobody waits for any more, beside the one that is used."""
WAIT = 0.004
"""Seconds that the dispatch thread waits for a computation before it looks at requests."""


def is_computed(arrays: Sequence[mx.array]) -> bool:
    """Whether arrays have their elements; also if that cannot be told without waiting."""
    if not kernels.available():
        return True
    found: bool = kernels.module().available(arrays)
    return found


def wait(arrays: Sequence[mx.array]) -> bool:
    """Wait a short time at most for arrays to be computed; return whether they are."""
    end = perf_counter() + WAIT
    pause = 2e-5
    while not is_computed(arrays):
        if perf_counter() >= end:
            return False
        sleep(pause)
        pause = min(1.5 * pause, 5e-4)
    return True


@dataclass
class _Long:
    """A long computation.

    Args:
        stream: where it is.
        owner: the unit that waits for it; None: nobody does any more.
        mark: an array that is computed right after it.
    """

    stream: mx.Stream
    owner: SteppedCall | None
    mark: mx.array


class ArrayStreams:
    """Hands out the stream of arrays: one, as long as nobody has left long work behind on it.

    Args:
        runtime: has the streams.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._current: mx.Stream | None = None
        self._left: list[mx.Stream] = []
        self._long: list[_Long] = []

    @property
    def current(self) -> mx.Stream:
        """Where new work is computed."""
        if self._current is None:
            self._current = self._runtime.streams.take()
        return self._current

    def begin(self, owner: SteppedCall, stream: mx.Stream) -> None:
        """Note that a unit has begun a long computation on a stream."""
        self._prune()
        mark = mx.zeros((), stream=stream)
        mx.async_eval(mark)
        self._long.append(_Long(stream, owner, mark))

    def ahead_of(self, unit: SteppedCall, stream: mx.Stream) -> list[mx.array] | None:
        """Return an array that others' long work on a stream ends with; None if there is none."""
        self._prune()
        found = (each for each in self._long if each.stream == stream and each.owner is not unit)
        first = next(found, None)
        return None if first is None else [first.mark]

    def end(self, owner: SteppedCall, stream: mx.Stream, computes: bool) -> None:
        """Note that a unit has ended.

        Args:
            owner: the unit.
            stream: where it computed.
            computes: whether something of it is still computed there; then others leave it.
        """
        self._prune()
        for each in self._long:
            if each.owner is owner:
                each.owner = None
        if computes:
            self._leave(stream)

    def stop(self) -> None:
        """Give all streams back."""
        self._long.clear()
        for stream in self._left:
            self._runtime.streams.give_back(stream)
        self._left.clear()
        if self._current is not None:
            self._runtime.streams.give_back(self._current)
            self._current = None

    def _leave(self, stream: mx.Stream) -> None:
        if stream != self._current or len(self._left) == MAX_LEFT:
            return
        with suppress(OutOfMemory):  # then what comes waits for what is computed
            self._current = self._runtime.streams.take()
            self._left.append(stream)

    def _prune(self) -> None:
        """Forget what is computed, and let streams that were left be used again."""
        if not self._long:
            return
        self._long = [each for each in self._long if not is_computed([each.mark])]
        busy = [each.stream for each in self._long]
        for stream in [each for each in self._left if each not in busy]:
            self._left.remove(stream)
            self._runtime.streams.give_back(stream)


class ArrayWork(SteppedCall):
    """Work on the stream of arrays, which has no turn while others' long work is computed there.

    So that the dispatch thread, which waits for what a turn computes, waits for short work alone.

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

    def _awaited(self) -> list[mx.array] | None:
        """Return what has to be computed before the next turn, or None."""
        return self._streams.ahead_of(self, self._stream)

    def _may_step(self) -> bool:
        return self._awaited() is None

    def block(self) -> bool:
        """Wait a short time for what is computed, and go on if it is there."""
        awaited = self._awaited()
        if awaited is not None and not wait(awaited):
            return True  # requests are heard in between, a cancel among them
        return self.turn()  # also for what was computed since the last turn
