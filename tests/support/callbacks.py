"""What calls raise, and Python functions as callbacks of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cowmlx.host.library import Callbacks

__all__ = ["Callbacks", "StatusError", "refused"]


class StatusError(Exception):
    """A call failed: its status, the status's name, the thread's message and its details."""

    def __init__(self, status: int, name: str, message: str, failure: dict[str, Any]):
        super().__init__(f"{name}: {message}")
        self.status = status
        self.name = name
        self.message = message
        self.reason: str = failure["reason"]
        self.details: dict[str, Any] = failure["details"]


def refused(status: int, words: str, call: Callable[[], object]) -> None:
    """Check that a call fails with a status, and that its message has all of some words."""
    try:
        call()
    except StatusError as error:
        assert error.status == status, error
        missing = [word for word in words.split() if word not in str(error)]
        assert not missing, (missing, str(error))
    else:
        raise AssertionError(f"no failure of status {status}")
