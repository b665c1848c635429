"""What the engine sees of a host's call: the interface that the bridge implements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cowmlx.generation.generation import Piece, Stats


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

    def succeed(self) -> None:
        """End the call."""

    def succeed_with_handle(self, handle: int) -> None:
        """End the call and give the host a handle."""

    def succeed_with_count(self, count: int) -> None:
        """End the call and give the host a number of tokens."""

    def succeed_with_stats(self, stats: Stats) -> None:
        """End the call and give the host its sizes and times."""

    def deliver(self, piece: Piece) -> bool:
        """End the call with a piece; false if it does not fit the host's buffer."""

    def done(self, piece: Piece) -> None:
        """End the call with "no more output"."""

    def fail(self, error: BaseException) -> None:
        """End the call with the status of an exception."""
