"""Arrays whose values a run that was submitted will give, or its error."""

from __future__ import annotations

from cowmlx import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mlx.core as mx

    from cowmlx.errors import CowMlxError


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
        self.error: CowMlxError | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it has a value or an error."""
        return self.value is not None or self.error is not None

    def get(self) -> mx.array:
        """Return the value; only if it is settled.

        Raises:
            CowMlxError: why it will never be there.
        """
        if self.value is not None:
            return self.value
        if self.error is None:
            raise RuntimeError("the value is asked for before it is there")
        raise failures.kept(self.error)  # a copy for everybody who asks

    def succeed(self, value: mx.array) -> None:
        """Give it its value: evaluated, row-major, of its handle's dtype and shape."""
        if not self.is_settled:
            self.value = value

    def fail(self, error: BaseException) -> None:
        """Give it the run's error instead."""
        if not self.is_settled:
            self.error = failures.kept(error)
