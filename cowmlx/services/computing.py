"""Work that waits for what mlx computes, while others have their turns, and its streams."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from time import perf_counter
from weakref import ReferenceType, ref

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.errors import OutOfMemory
from cowmlx.scheduling.stepped import SteppedCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from cowmlx.services.runtime import Runtime


_STARTING = 5e-4
"""A turn that takes so many seconds has started parts of a computation."""
_PRUNED = 1024
"""References to arrays that are gone are dropped when there are more than so many."""


def is_computed(arrays: Sequence[mx.array]) -> bool:
    """Whether arrays have their elements; also if that cannot be known without waiting."""
    if not kernels.available():
        return True
    module = kernels.module()
    available: bool = module.available(arrays) and all(map(module.is_sound, arrays))
    return available


class LazyArrays:
    """The lazy arrays that hosts have, whether or not others have computed them since.

    Nothing keeps them: they leave with their handles.
    """

    def __init__(self) -> None:
        self._arrays: list[ReferenceType[mx.array]] = []
        self._most = _PRUNED

    def add(self, array: mx.array) -> None:
        """Note an array."""
        self._arrays.append(ref(array))
        if len(self._arrays) > self._most:
            self._arrays = [ref(each) for each in self.all()]
            self._most = 2 * len(self._arrays) + _PRUNED

    def all(self) -> list[mx.array]:
        """Return those that are still there."""
        return [array for each in self._arrays if (array := each()) is not None]


# One for the process, as mlx's graphs are.
LAZY = LazyArrays()


class Computation:
    """Arrays that mlx computes in parts.

    ``mx.async_eval`` of a long graph would wait for most of it. Without kernels, all is computed at
    once.

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

    def start(self) -> None:
        """Start all of it at once: short work, which is computed sooner so."""
        self._run(self._start)

    def finish(self) -> None:
        """Wait for all of it."""
        self._run(self._finish)

    def advance(self, waits: bool = False) -> bool:
        """Start the parts for which there is room; return whether all is computed, or failed.

        Args:
            waits: whether to wait some milliseconds for what was started.
        """
        return not self._arrays or self._run(partial(self._proceed, waits))

    def _start(self) -> bool:
        mx.async_eval(self._arrays)
        return False

    def _finish(self) -> bool:
        mx.eval(self._arrays)
        return True

    def _proceed(self, waits: bool) -> bool:
        if self._evaluation is None:
            return self._finish()
        is_computed: bool = self._evaluation.advance(waits)
        return is_computed

    def _run(self, function: Callable[[], bool]) -> bool:
        """Call a function that says whether all is computed; return that, also of a failure."""
        try:
            if not function():
                return False
        except Exception as error:
            self.error = error
            if self._evaluation is not None:
                self._evaluation.settle([*LAZY.all(), *self._arrays])
        self._arrays.clear()
        self._evaluation = None
        return True


class ComputingCall(SteppedCall):
    """Steps that yield lazy arrays, and continue once these are computed.

    Reading the last result of many lazy operations computes all of them, so the dispatch thread
    must not wait for it.
    """

    _computation: Computation | None = None
    _error: Exception | None = None

    @property
    def is_computing(self) -> bool:
        """Whether a computation was started and not seen to end."""
        return self._computation is not None

    @property
    def computing(self) -> Computation | None:
        """The computation that the next step needs; None if there is none."""
        if self._computation is not None and self._computation.advance():
            self._error = self._computation.error
            self._computation = None
        return self._computation

    def _turn(self) -> bool:
        began = perf_counter()
        return super()._turn() or perf_counter() - began > _STARTING

    def _awaited(self) -> Computation | None:
        """Return the computation before which the unit has no turn, or None."""
        return self.computing

    def _may_step(self) -> bool:
        if self._awaited() is not None:
            return False
        if self._error is not None:
            raise self._error
        return True

    def block(self) -> bool:
        """Wait a short time for the computation, and continue if it has ended."""
        awaited = self._awaited()
        if awaited is not None and not awaited.advance(waits=True):
            return True  # requests come first, such as a cancel
        return self.turn()

    def _receive(self, value: list[mx.array] | None) -> bool | None:
        if value:
            self._computation = Computation(value)
            self._computation.advance()
        return None

    def _release(self) -> None:
        self._computation = None


MAX_LEFT = 4
"""Abandoned streams that may still compute, beside the current one."""


class ArrayStreams:
    """Hands out the stream of arrays: the same one until a unit abandons long work on it.

    Args:
        runtime: has the streams.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._current: mx.Stream | None = None
        self._computing: list[ArrayWork] = []
        # Abandoned streams, each with an array that is computed after their work.
        self._left: list[tuple[mx.Stream, Computation]] = []

    @property
    def current(self) -> mx.Stream:
        """The stream of new work."""
        if self._current is None:
            self._current = self._runtime.streams.take()
        return self._current

    def begin(self, unit: ArrayWork) -> None:
        """Record that a unit computes."""
        if unit not in self._computing:
            self._computing.append(unit)

    def end(self, unit: ArrayWork) -> None:
        """Record that a unit has ended; leave its stream if that still computes."""
        if unit not in self._computing:
            return
        if unit.is_computing:
            self._leave(unit.stream)
        self._computing.remove(unit)

    def ahead_of(self, unit: ArrayWork | None) -> Computation | None:
        """Return a computation of another unit on the current stream, or None."""
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
        """Abandon a stream, which still computes: new work gets another one."""
        if stream != self._current:
            return
        self._prune()
        mark = Computation([mx.zeros((), stream=stream)])
        mark.advance()
        self._left = [each for each in self._left if each[0] != stream]
        if len(self._left) < MAX_LEFT:
            with suppress(OutOfMemory):  # without a new stream, new work waits behind the old
                self._current = self._runtime.streams.take()
        self._left.append((stream, mark))

    def _prune(self) -> None:
        """Give abandoned streams back once they have finished."""
        for left in [each for each in self._left if each[1].advance()]:
            self._left.remove(left)
            if left[0] != self._current:
                self._runtime.streams.give_back(left[0])


class ArrayWork(ComputingCall):
    """Work on the stream of arrays, without turns while another unit computes there.

    The dispatch thread waits for short work, and would wait for the other unit's, too.

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
        """The stream of the last step."""
        return self._stream

    def _awaited(self) -> Computation | None:
        return self.computing or self._streams.ahead_of(self)

    def _may_step(self) -> bool:
        if not super()._may_step():
            return False
        self._stream = self._streams.current
        return True

    def _receive(self, value: list[mx.array] | None) -> bool | None:
        if value:
            self._streams.begin(self)
        return super()._receive(value)

    def _release(self) -> None:
        self._streams.end(self)
        super()._release()
