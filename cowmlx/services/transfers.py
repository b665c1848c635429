"""Long work on contexts, which let no call in meanwhile: they are saved, loaded, given a prompt."""

from __future__ import annotations

from cowmlx.errors import Canceled
from cowmlx.generation.waiters import BeginWaiter
from cowmlx.scheduling.stepped import SteppedCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.call import Call
    from cowmlx.generation.context import Context


class Transfer(SteppedCall):
    """Runs a save or a load; its context lets no call in meanwhile.

    Args:
        call: ends with the transfer.
        context: that is saved or loaded.
        steps: does the work; when closed early it leaves everything as it was. Returns tokens
            that the context is to process yet, if any.
    """

    def __init__(
        self,
        call: Call,
        context: Context,
        steps: Generator[None, None, list[int] | None],
    ) -> None:
        super().__init__(call, steps, context.stream(), context)
        self._context = context
        self.priority = context.priority
        context.occupy()

    def _broken_off(self) -> Canceled | None:
        if self._context.cancel_epoch() == self._call.cancel_epoch:
            return None
        return Canceled("the context was cancelled; nothing was changed")

    def _release(self) -> None:
        self._context.release()

    def _succeed(self, result: Any) -> None:
        if result and not self._context.trim(result, self._call.cancel_epoch):
            self._context.wait(BeginWaiter(self._call))
        else:
            self._call.succeed()


class Preparing(Transfer):
    """Does work from which a call continues; its context lets no call in meanwhile.

    Args:
        call: continues with the result.
        context: that it works on.
        steps: do the work, and return what ``begin`` receives.
        begin: ends the call, or starts its own work; what it raises ends the call.
    """

    def __init__(
        self,
        call: Call,
        context: Context,
        steps: Generator[None, None, Any],
        begin: Callable[[Any], object],
    ) -> None:
        super().__init__(call, context, steps)
        self._begin = begin

    def _succeed(self, result: Any) -> None:
        self._begin(result)
