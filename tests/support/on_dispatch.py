"""Code of a test on the dispatch thread of a library that has joined its interpreter.

What a method of the engine calls is replaced by a function of the test's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cowmlx.arrays.table import Submitted
from cowmlx.services import array_files
from cowmlx.services.arrays import Arrays as Service
from support.arrays import Arrays
from support.library import Library


@contextmanager
def runner(lib: Library) -> Iterator[Callable[[Callable[[Service], Any]], Any]]:
    """What runs a function, with the service of arrays, and returns its result, as JSON has it."""
    own = array_files.info

    def run(function: Callable[[Service], Any]) -> Any:
        done: list[Any] = []  # the call is made twice: the first asks for the size

        def info(_: str) -> dict[str, Any]:
            if not done:  # the caller is the service's method
                done.append(function(sys._getframe(1).f_locals["self"]))
            return {"result": done[0]}

        array_files.info = info
        return Arrays(lib).info("")["result"]

    try:
        yield run
    finally:
        array_files.info = own


class Run:
    """A unit of the scheduler that has work until its array is settled."""

    priority = 0
    shares_time = False

    def __init__(self, submitted: Submitted) -> None:
        self._submitted = submitted

    @property
    def finished(self) -> bool:
        """Whether it has no more work."""
        return self._submitted.is_settled

    def attend(self) -> None:
        """Nothing ends it early."""

    def block(self) -> bool:
        """Nothing is waited for between its turns."""
        return False

    def turn(self) -> bool:
        """Compute a little."""
        return not self.finished
