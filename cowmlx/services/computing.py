"""Work that waits for what mlx computes, while others have their turns."""

from __future__ import annotations

from time import perf_counter

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.scheduling.stepped import SteppedCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

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
