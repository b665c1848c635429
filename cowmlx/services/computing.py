"""Work that waits for what mlx computes, while others have their turns."""

from __future__ import annotations

from os import sched_yield
from time import perf_counter, sleep

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.scheduling.stepped import SteppedCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

WAIT = 0.004
"""Seconds that the dispatch thread waits for a computation before it looks at requests."""
_BRIEF = 1e-4
"""Seconds of these in which it does not sleep: small arrays take less than the shortest sleep."""


def is_computed(arrays: Sequence[mx.array]) -> bool:
    """Whether arrays have their elements; also if that cannot be told without waiting."""
    if not kernels.available():
        return True
    found: bool = kernels.module().available(arrays)
    return found


def wait(arrays: Sequence[mx.array]) -> bool:
    """Wait a short time at most for arrays to be computed; return whether they are."""
    began = perf_counter()
    pause, waited = 2e-5, 0.0
    while waited < WAIT:
        if is_computed(arrays):
            return True
        if waited < _BRIEF:
            sched_yield()
        else:
            sleep(pause)
            pause = min(1.5 * pause, 5e-4)
        waited = perf_counter() - began
    return False


class ComputingCall(SteppedCall):
    """Steps that yield arrays, and go on once these are computed.

    Operations are lazy, so an array may take any time: a read of the last result of many computes
    all of them. The dispatch thread must not wait for that.
    """

    _computing: list[mx.array] | None = None

    @property
    def computing(self) -> list[mx.array] | None:
        """What the last step has begun; None if that is computed."""
        if self._computing is not None and is_computed(self._computing):
            self._computing = None
        return self._computing

    def _awaited(self) -> list[mx.array] | None:
        """Return what has to be computed before the next turn, or None."""
        return self.computing

    def _may_step(self) -> bool:
        return self._awaited() is None

    def block(self) -> bool:
        """Wait a short time for what is computed, and go on if it is there."""
        awaited = self._awaited()
        if awaited is not None and not wait(awaited):
            return True  # requests are heard in between, a cancel among them
        return self.turn()  # also for what was computed since the last turn

    def _tell(self, told: list[mx.array] | None) -> bool | None:
        self._computing = told or None
        return None

    def _release(self) -> None:
        self._computing = None
