"""What calls raise, and Python functions as callbacks of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class StatusError(Exception):
    """A call failed: its status, the status's name, the thread's message and its details."""

    def __init__(self, status: int, name: str, message: str, failure: dict[str, Any]):
        super().__init__(f"{name}: {message}")
        self.status = status
        self.name = name
        self.message = message
        self.reason: str = failure["reason"]
        self.details: dict[str, Any] = failure["details"]


class Callbacks:
    """Wraps Python functions as callbacks and keeps what they raise.

    A callback that returns None goes on; one that raises cancels the call, and
    :meth:`reraise` raises the exception again once the call has returned.
    """

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.kept: list[Any] = []

    def wrap(self, kind: Any, function: Callable[..., bool | None] | None) -> Any:
        """A callback of the ctypes type ``kind``; NULL for None."""
        if function is None:
            return kind()

        def guarded(*arguments: Any) -> bool:
            try:
                return function(*arguments[:-1]) is not False
            except BaseException as error:
                self.errors.append(error)
                return False

        self.kept.append(kind(guarded))
        return self.kept[-1]

    def reraise(self) -> None:
        """Raise what a callback has raised."""
        if self.errors:
            raise self.errors[0]
