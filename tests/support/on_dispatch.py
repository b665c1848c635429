"""Code of a test on the dispatch thread of a library that has joined its interpreter.

A method of the engine is replaced by one of the test's, and run by its call of C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cowmlx.arrays.submitted import Submitted
from cowmlx.services.arrays import Arrays as Service
from support.arrays import Arrays
from support.library import Library


@contextmanager
def runner(lib: Library) -> Iterator[Callable[[Callable[[Service], Any]], Any]]:
    """What runs a function, with the service of arrays, and returns its result, as JSON has it."""
    own = Service.arrays_info

    def run(function: Callable[[Service], Any]) -> Any:
        done: list[Any] = []  # the call is made twice: the first asks for the size

        def method(service: Service, _: str) -> dict[str, Any]:
            if not done:
                done.append(function(service))
            return {"result": done[0]}

        Service.arrays_info = method
        return Arrays(lib).info("")["result"]

    try:
        yield run
    finally:
        Service.arrays_info = own


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
