"""Long work in steps: generators that yield between them, and return a result."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, TypeVar

    Result = TypeVar("Result")


def finished(steps: Generator[Any, None, Result]) -> Result:
    """Take all steps at once, where no other work waits, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: Result = stop.value
            return result
