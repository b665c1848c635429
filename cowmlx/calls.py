"""What the engine sees of a host's call: the interface that the bridge implements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import mlx.core as mx

    from cowmlx.generation.piece import Piece, Stats


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
        """The context's count of cancellations when the call was made."""

    def post_progress(self, fraction: float, stage: str) -> None:
        """Tell how far a long call is; only when ready."""

    def post_prompt(self, processed: int, total: int) -> None:
        """Tell how much of a prompt is processed; only when ready."""

    def post_text(self, text: bytes) -> None:
        """Hand over generated text; only when ready."""

    def post_chat(self, kind: int, text: str, name: str, finish: int) -> None:
        """Hand over a chat event; only when ready."""

    def note(self, message: str) -> None:
        """Let the host's log have one message, of level INFO, when the call ends."""

    def succeed(self) -> None:
        """End the call."""

    def succeed_with_handle(self, handle: int) -> None:
        """End the call and give the host a handle."""

    def succeed_with_count(self, count: int) -> None:
        """End the call and give the host a number of tokens."""

    def succeed_with_tokens(self, tokens: list[int]) -> None:
        """End the call and give the host tokens."""

    def succeed_with_text(self, text: str) -> None:
        """End the call and give the host a text."""

    def succeed_with_floats(self, array: mx.array, count: int) -> None:
        """End the call with evaluated float32 values, and a number that goes with them."""

    def answer_size(self, size: int, count: int) -> bool:
        """End the call if ``size`` floats need not be computed; false if they have to be.

        That is so where the host asks for a size alone, has too small a buffer, or ``size`` is
        0. It is given the number that goes with them.
        """

    def succeed_with_stats(self, stats: Stats) -> None:
        """End the call and give the host its sizes and times."""

    def deliver(self, piece: Piece) -> bool:
        """End the call with a piece; false if it does not fit the host's buffer."""

    def done(self, piece: Piece) -> None:
        """End the call with "no more output"."""

    def fail(self, error: BaseException) -> None:
        """End the call with the status of an exception."""
