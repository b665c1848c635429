"""Arrays whose values a run that was submitted will give, or its error."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mlx.core as mx


class Submitted:
    """What stands for a value to come; whoever computes it settles it once.

    Until then that takes turns in the scheduler, between which waiting calls look at the clock.

    Attributes:
        value: the array, once it is there.
        error: why it will never be there.
    """

    __slots__ = ("error", "value")

    def __init__(self) -> None:
        self.value: mx.array | None = None
        self.error: BaseException | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it has a value or an error."""
        return self.value is not None or self.error is not None

    def succeed(self, value: mx.array) -> None:
        """Give it its value, of the dtype and shape that its handle was opened with."""
        if not self.is_settled:
            self.value = value

    def fail(self, error: BaseException) -> None:
        """Give it the run's error instead."""
        if not self.is_settled:
            self.error = error
