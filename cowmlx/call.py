"""A host's call, as the bridge hands it to the engine."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol, TypeVar

    Method = TypeVar("Method", bound=Callable[..., Any])


def keeps_call(method: Method) -> Method:
    """Mark a method of the engine that takes its call as first argument, and ends it later."""
    method.keeps_call = True  # type: ignore[attr-defined]
    return method


def ends_later(method: Callable[..., Any]) -> bool:
    """Whether a method of the engine keeps its call."""
    return hasattr(method, "keeps_call")


if TYPE_CHECKING:

    class LogitsQuestion(Protocol):
        """Logits that a host's function may change, on the host's thread."""

        @property
        def answer(self) -> bool | None:
            """What the function has returned; None: it has not."""

        @property
        def values(self) -> memoryview:
            """Floats, one for each token of the vocabulary."""

    class LogitsFunction(Protocol):
        """A host's function for logits."""

        def question(self, tokens: list[int], vocabulary: int) -> LogitsQuestion:
            """Return a question behind tokens, whose values are to be filled in."""

    class Call(Protocol):
        """A call; its caller sleeps until it ends, exactly once."""

        @property
        def ready(self) -> bool:
            """Whether the host has taken the last event and wants more."""

        @property
        def refused(self) -> bool:
            """Whether the host's callback has returned false."""

        @property
        def cancel_epoch(self) -> int:
            """How often the context, program or training had been cancelled when the call came."""

        @property
        def round(self) -> int:
            """Where the results of a call that has returned at once go; else 0."""

        @property
        def reserved(self) -> int:
            """The handle that such a call has returned; else 0."""

        @property
        def logits_function(self) -> LogitsFunction | None:
            """The host's function for logits; None: it has none."""

        def ask_logits(self, question: LogitsQuestion) -> None:
            """Let the host's function change logits; only when ready."""

        @property
        def brings_batches(self) -> bool:
            """Whether the host has a function for batches."""

        def post_progress(self, fraction: float, stage: str) -> None:
            """Report progress; only when ready."""

        def post_prompt(self, processed: int, total: int) -> None:
            """Report the processed tokens of a prompt; only when ready."""

        def post_text(self, text: bytes) -> None:
            """Hand over generated text; only when ready."""

        def post_chat(self, kind: int, text: str, name: str, finish: int) -> None:
            """Hand over a chat event; only when ready."""

        def post_training(self, report: object) -> None:
            """Hand over a training's event, its fields as attributes; only when ready."""

        def ask_batch(self, step: int, count: int) -> None:
            """Ask the host for the arrays of a step; only when ready."""

        def take_batch(self) -> list[int] | None:
            """Return the batch's handles, once ready; None if there is no more."""

        def note(self, message: str) -> None:
            """Log a message of level INFO when the call ends."""

        def warn(self, message: str) -> None:
            """Log a message of level WARNING when the call ends."""

        def succeed(self, value: object = None) -> bool:
            """End the call with its outputs.

            Args:
                value: the output, or a tuple of several, as methods that keep no call return it.

            Returns:
                whether the host's buffers are large enough; if not, the call has failed.
            """

        def done(self, value: object) -> None:
            """End the call with DONE."""

        def answer_size(self, size: int, count: int) -> bool:
            """End the call if ``size`` floats need not be computed; else return False.

            The host asks for the size alone, its buffer is too small, or ``size`` is 0. It receives
            the size and ``count``.
            """

        def fail(self, error: BaseException) -> None:
            """End the call with the status of an exception."""
