"""Long work for one call, a bounded step a turn: a unit of the scheduler."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.errors import Canceled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.calls import Call


class SteppedCall:
    """Runs a generator, whose result ends the call, so that others step meanwhile.

    Args:
        call: ends with the work.
        steps: does it; when closed early it leaves everything as it was.
        stream: to compute on.
    """

    priority = 0

    def __init__(self, call: Call, steps: Generator[Any, None, Any], stream: mx.Stream) -> None:
        self._call = call
        self._steps = steps
        self._stream = stream
        self.finished = False

    def turn(self) -> bool:
        """Do one step; false if there is none now."""
        if self.finished or not self._may_step():
            return False
        reason = self._broken_off()
        if reason is not None:
            self.abandon(reason)
            return True
        try:
            with mx.stream(self._stream):
                told = next(self._steps)
        except StopIteration as stop:
            self._finish(stop.value)
        except BaseException as error:  # ends this call, and nothing else
            self._fail(error)
        else:
            self._tell(told)
        return True

    def attend(self) -> None:
        """End here if that was asked for."""
        reason = self._broken_off()
        if reason is not None and not self.finished:
            self.abandon(reason)

    def abandon(self, reason: str) -> None:
        """Stop, and cancel the call."""
        self._steps.close()
        self._fail(Canceled(reason))

    def _fail(self, error: BaseException) -> None:
        self.finished = True
        self._release()
        self._call.fail(error)

    def _finish(self, result: Any) -> None:
        self.finished = True
        self._release()
        self._succeed(result)

    # What kinds of work differ in.

    def _may_step(self) -> bool:
        """Whether the host lets the work go on now."""
        return True

    def _broken_off(self) -> str | None:
        """Return why the work ends here, or None."""
        return None

    def _tell(self, told: Any) -> None:
        """Let the host know what a step yielded."""

    def _release(self) -> None:
        """Give up what the work held; the call ends right after."""

    def _succeed(self, result: Any) -> None:
        """End the call with the work's result."""
        self._call.succeed()
