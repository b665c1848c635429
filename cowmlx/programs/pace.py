"""Long work in turns: generators that yield where others may have one."""

from __future__ import annotations

from collections.abc import Generator
from time import perf_counter
from typing import Any, TypeVar

from cowmlx.programs.bounds import TURN

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that yields where others may have a turn, and returns its result."""


class Pace:
    """Tells when a turn has been long enough."""

    def __init__(self) -> None:
        self._began = perf_counter()

    def rest(self) -> Generator[None]:
        """Yield if the turn has been long enough."""
        if perf_counter() - self._began >= TURN:
            yield
            self._began = perf_counter()


def finish(steps: Generator[Any, None, T]) -> T:
    """Take all steps, for those who have nobody else to give a turn to."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
