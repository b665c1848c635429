"""Handles: integers that stand for objects."""

from __future__ import annotations

from cowmlx.errors import OutOfMemory, UnknownHandle
from cowmlx.generated.constants import (
    KIND_ADAPTER,
    KIND_CHECKPOINT,
    KIND_CONTEXT,
    KIND_MEDIA,
    KIND_MODEL,
    KIND_PROGRAM,
    KIND_TRAINING,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NOUNS = {
    KIND_MODEL: "model",
    KIND_CONTEXT: "context",
    KIND_ADAPTER: "adapter",
    KIND_CHECKPOINT: "checkpoint",
    KIND_PROGRAM: "program",
    KIND_TRAINING: "training",
    KIND_MEDIA: "media",
}


class HandleTable:
    """The objects of open handles.

    Args:
        open_handle: returns a new handle of a kind, or 0 if there is none (csrc/base/handles.h).
        close_handle: takes one back.
    """

    def __init__(
        self, open_handle: Callable[[int], int], close_handle: Callable[[int], None]
    ) -> None:
        self._open_handle = open_handle
        self._close_handle = close_handle
        self._entries: dict[int, dict[int, object]] = {kind: {} for kind in NOUNS}

    def add(self, kind: int, value: object) -> int:
        """Return a new handle for ``value``.

        Raises:
            OutOfMemory: all handles of the kind are open.
        """
        entries = self._entries[kind]
        handle = self._open_handle(kind)
        if not handle:
            message = f"{len(entries)} {NOUNS[kind]}s are open, which is the most there can be"
            raise OutOfMemory(message, reason="no_handles", kind=NOUNS[kind], limit=len(entries))
        entries[handle] = value
        return handle

    def put(self, kind: int, handle: int, value: object) -> int:
        """Set the object of an open handle that a host has already; returns the handle."""
        self._entries[kind][handle] = value
        return handle

    def give_up(self, kind: int, handle: int) -> None:
        """Forget the object of a handle, if there is one; the host closes the handle."""
        self._entries[kind].pop(handle, None)

    def get(self, kind: int, handle: int) -> object:
        """Return the object of an open handle of this kind.

        Raises:
            UnknownHandle: it is not open.
        """
        value = self.find(kind, handle)
        if value is None:
            raise UnknownHandle(
                f"{handle} is not an open {NOUNS[kind]}", handle=handle, kind=NOUNS[kind]
            )
        return value

    def find(self, kind: int, handle: int) -> object | None:
        """Return the object of an open handle of this kind, or None."""
        return self._entries[kind].get(handle)

    def remove(self, kind: int, handle: int) -> object:
        """Close an open handle of this kind and return its object."""
        value = self.get(kind, handle)
        del self._entries[kind][handle]
        self._close_handle(handle)
        return value

    def handles(self, kind: int) -> list[int]:
        """Return the open handles of a kind."""
        return list(self._entries[kind])
