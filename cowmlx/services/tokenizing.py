"""Long texts being turned into tokens and back: units of the scheduler, as others step meanwhile.

What fits one part never comes here: the engine does the first step itself.
"""

from __future__ import annotations

import mlx.core as mx

from cowmlx.scheduling.stepped import SteppedCall
from cowmlx.services.saving import Transfer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.call import Call
    from cowmlx.generation.context import Context
    from cowmlx.models.model import Model


class Tokenizing(SteppedCall):
    """Runs the steps of a call that needs no more than a model's tokenizer.

    Args:
        call: ends with the result.
        model: whose tokenizer it is.
        steps: do the work.
    """

    def __init__(self, call: Call, model: Model, steps: Generator[None, None, Any]) -> None:
        super().__init__(call, steps, mx.default_stream(mx.default_device()), model)

    def _succeed(self, result: Any) -> None:
        self._call.succeed(result)


class PromptTokenizing(Transfer):
    """Tokenizes the prompt of a chat; its context lets no call in meanwhile.

    Args:
        call: goes on with the chat.
        context: that the chat is on.
        steps: return the prompt's tokens.
        begin: starts the generation; what it raises ends the call.
    """

    def __init__(
        self,
        call: Call,
        context: Context,
        steps: Generator[None, None, Any],
        begin: Callable[[Any], None],
    ) -> None:
        super().__init__(call, context, steps)
        self._begin = begin

    def _succeed(self, result: Any) -> None:
        try:
            self._begin(result)
        except BaseException as error:  # the prompt does not fit, for example
            self._call.fail(error)
