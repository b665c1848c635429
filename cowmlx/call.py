"""What the engine sees of a host's call: the interface that the bridge implements."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol, TypeVar

    Method = TypeVar("Method", bound=Callable[..., Any])


def keeps_call(method: Method) -> Method:
    """Mark a method of the engine that is given its call first, and ends it later."""
    method.keeps_call = True  # type: ignore[attr-defined]
    return method


def ends_later(method: Callable[..., Any]) -> bool:
    """Whether a method of the engine keeps its call."""
    return hasattr(method, "keeps_call")


if TYPE_CHECKING:

    class Call(Protocol):
        """A call whose caller sleeps until it ends, which it does exactly once."""

        @property
        def ready(self) -> bool:
            """Whether the host has taken the last event, and wants more."""

        @property
        def refused(self) -> bool:
            """Whether the host's callback has returned false."""

        @property
        def cancel_epoch(self) -> int:
            """The context's, program's or training's cancellations when the call was made."""

        @property
        def round(self) -> int:
            """Of a call that has returned at once: where what it brings about goes; else 0."""

        @property
        def reserved(self) -> int:
            """The handle that such a call has promised; else 0."""

        @property
        def brings_batches(self) -> bool:
            """Whether the host has a function that brings batches."""

        def post_progress(self, fraction: float, stage: str) -> None:
            """Tell how far a long call is; only when ready."""

        def post_prompt(self, processed: int, total: int) -> None:
            """Tell how much of a prompt is processed; only when ready."""

        def post_text(self, text: bytes) -> None:
            """Hand over generated text; only when ready."""

        def post_chat(self, kind: int, text: str, name: str, finish: int) -> None:
            """Hand over a chat event; only when ready."""

        def post_training(self, told: object) -> None:
            """Hand over an event of a training, with its members as attributes; only when ready."""

        def ask_batch(self, step: int, count: int) -> None:
            """Ask the host for the arrays of a step; only when ready."""

        def take_batch(self) -> list[int] | None:
            """Return the handles of what was asked for, once ready; None if there is no more."""

        def note(self, message: str) -> None:
            """Let the host's log have one message, of level INFO, when the call ends."""

        def warn(self, message: str) -> None:
            """Let the host's log have one message, of level WARNING, when the call ends."""

        def succeed(self, value: object = None) -> bool:
            """End the call and give the host what it asked for, if that fits its buffers.

            Args:
                value: as a method that ends at once returns it; a tuple where there are several
                    outputs.

            Returns:
                whether it fitted; if not, the call has failed, and nothing was given.
            """

        def done(self, value: object) -> None:
            """End the call with "no more output"."""

        def answer_size(self, size: int, count: int) -> bool:
            """End the call if ``size`` floats need not be computed; false if they have to be.

            That is so where the host asks for a size alone, has too small a buffer, or ``size`` is
            0. It is given the number that goes with them.
            """

        def fail(self, error: BaseException) -> None:
            """End the call with the status of an exception."""
