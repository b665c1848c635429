"""Long work for one call, a bounded step a turn, as a unit of the scheduler."""

from __future__ import annotations

from contextlib import suppress
from math import inf

import mlx.core as mx

from cowmlx import failures
from cowmlx.errors import Canceled
from cowmlx.scheduling.streams import clear_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.call import Call


class SteppedCall:
    """Runs a generator, whose result ends the call, while others step.

    Args:
        call: ends with the work.
        steps: do it; when closed early they leave everything unchanged.
        stream: to compute on; None if nothing is computed.
        subject: of the work, which ends when that is freed; None if it cannot be freed.
        on_end: called before the call ends.
    """

    priority = 0
    patience = 0.0
    due = inf

    def __init__(
        self,
        call: Call,
        steps: Generator[Any, None, Any],
        stream: mx.Stream | None = None,
        subject: object = None,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        self.subject = subject
        self._on_end = on_end
        self._call = call
        self._steps = steps
        self._stream = stream or mx.default_stream(mx.default_device())
        self.finished = False

    @property
    def wakes(self) -> float:
        """When it may want a turn although nothing has happened."""
        return inf

    @property
    def shares_time(self) -> bool:
        """Whether its turns may be long, so that generations get their time back."""
        return False

    def turn(self) -> bool:
        """Do one step; false if there is none now."""
        if self.finished:
            return False
        try:
            return self._turn()
        except BaseException as error:  # ends this call, and nothing else
            self._end_with(error)
            return True

    def _turn(self) -> bool:
        if not self._may_step():
            return False
        if self._break_off():
            return True
        try:
            with mx.stream(self._stream):
                yielded = next(self._steps)
        except StopIteration as stop:
            self._end()
            self._succeed(stop.value)
        else:
            return self._receive(yielded) is not False
        return True

    def block(self) -> bool:
        """Wait for a computation; false if there is none."""
        return False

    def attend(self) -> None:
        """End here if the call was cancelled."""
        if self.finished:
            return
        try:
            self._break_off()
        except BaseException as error:  # ends this call, and nothing else
            self._end_with(error)

    def abandon(self, error: BaseException) -> None:
        """Stop, and end the call with an error, unless it has ended."""
        if not self.finished:
            self._end_with(error)

    def _break_off(self) -> bool:
        error = self._broken_off()
        if error is not None:
            self.abandon(error)
        return error is not None

    def _end_with(self, error: BaseException) -> None:
        """End the call with an error, even if cleaning up fails."""
        if failures.spoils(error):
            clear_error(self._stream)
        with suppress(BaseException):  # an error of cleaning up says less
            self._steps.close()
        with suppress(BaseException):
            self._end()
        explained = getattr(self.subject, "explained", None)  # of a model, or of what has one
        self._call.fail(error if explained is None else explained(error))

    def _end(self) -> None:
        """Release the work's resources, once."""
        if not self.finished:
            self.finished = True
            self._release()

    # For subclasses.

    def _may_step(self) -> bool:
        """Whether the host lets the work continue now."""
        return True

    def _broken_off(self) -> Canceled | None:
        """Return why the work ends here, or None."""
        return None

    def _receive(self, value: Any) -> bool | None:
        """Report a step's value to the host; false if the step has done nothing."""
        return None

    def _release(self) -> None:
        """Release the work's resources; the call ends right after."""
        self._on_end()

    def _succeed(self, result: Any) -> None:
        """End the call with the work's result; what this raises ends it instead."""
        self._call.succeed(result)
