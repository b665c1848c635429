"""What one render, or one compilation, of a chat template may use."""

from __future__ import annotations

import sys
import time

from cowmlx.errors import BadFormat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SECONDS = 1.0
MAX_BYTES = 64 << 20
MAX_STEPS = 2_000_000
MAX_DIGITS = 4300
MAX_DEPTH = 100
MAX_NESTING = 500
MAX_WIDTH = 999
MAX_RANGE = 100_000
# Characters that a render may write, besides so many times the size of its input.
# They become tokens next, at about a microsecond each.
MAX_TEXT = 256 << 10
MAX_REPEATS = 4

_MAX_BITS = MAX_DIGITS * 3322 // 1000
# A step takes less than a microsecond, so the clock is read every millisecond or so.
_STEPS_BETWEEN_LOOKS = 512


class OverBudget(BadFormat):
    """A chat template passed one of its bounds; the text names it."""


class Budget:
    """Counts what one render does; every operation pays before it is carried out.

    A step is an operation on small values, at most about a microsecond of work. Bytes are those
    of everything made, freed or not, so they bound the memory in use, too. Time is
    that of the thread, so that a busy machine makes no template fail.

    Attributes:
        steps: those done.
        bytes: those made.
    """

    __slots__ = ("_clock", "_deadline", "_depth", "_due", "bytes", "steps")

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self.steps = 0
        self.bytes = 0
        self._depth = 0
        self._clock = clock
        self._deadline = clock() + MAX_SECONDS
        self._due = 0

    def step(self, count: int = 1) -> None:
        """Pay for work.

        Raises:
            OverBudget: there is no step, or no time, left for it.
        """
        self.steps += count
        if self.steps >= self._due:
            self._look()

    def _look(self) -> None:
        if self.steps > MAX_STEPS:
            raise OverBudget(f"the chat template takes more than {MAX_STEPS} steps")
        if self._clock() > self._deadline:
            raise OverBudget(f"the chat template takes longer than {MAX_SECONDS:g} s")
        self._due = min(self.steps + _STEPS_BETWEEN_LOOKS, MAX_STEPS + 1)

    def reserve(self, size: int) -> None:
        """Make sure that something of so many bytes may be made.

        Raises:
            OverBudget: it may not.
        """
        if self.bytes + size > MAX_BYTES:
            raise OverBudget(f"the chat template makes more than {MAX_BYTES} bytes")

    def make(self, size: int) -> None:
        """Pay for bytes, and for the time that it takes to write them."""
        if self.bytes + size > MAX_BYTES:
            raise OverBudget(f"the chat template makes more than {MAX_BYTES} bytes")
        self.bytes += size
        self.step(size >> 10)

    def made(self, text: str) -> str:
        """Pay for a string that was reserved for, and return it."""
        self.make(sys.getsizeof(text))
        return text

    def integer(self, bits: int) -> None:
        """Make sure that an integer of so many bits may be made or written.

        Raises:
            OverBudget: it has too many digits.
        """
        if bits > _MAX_BITS:
            raise OverBudget(f"the chat template uses an integer of more than {MAX_DIGITS} digits")

    def enter(self) -> None:
        """Begin a call of a macro, a block or a recursive loop.

        Raises:
            OverBudget: it is nested too deeply.
        """
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise OverBudget(f"the chat template recurses deeper than {MAX_DEPTH} calls")

    def leave(self) -> None:
        """End a call."""
        self._depth -= 1


def check_width(width: int) -> None:
    """Make sure that a width or a precision in a format is a sensible one.

    Raises:
        OverBudget: it is not.
    """
    if width > MAX_WIDTH:
        raise OverBudget(f"the chat template formats wider than {MAX_WIDTH} characters")
