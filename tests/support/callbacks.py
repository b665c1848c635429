"""What calls raise, and Python functions as callbacks of calls."""

from __future__ import annotations

from typing import Any

from cowmlx.host.library import Callbacks

__all__ = ["Callbacks", "StatusError"]


class StatusError(Exception):
    """A call failed: its status, the status's name, the thread's message and its details."""

    def __init__(self, status: int, name: str, message: str, failure: dict[str, Any]):
        super().__init__(f"{name}: {message}")
        self.status = status
        self.name = name
        self.message = message
        self.reason: str = failure["reason"]
        self.details: dict[str, Any] = failure["details"]
