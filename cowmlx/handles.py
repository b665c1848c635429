"""Generational handles: integers that never name another object than their own."""

from __future__ import annotations

from collections import deque

from cowmlx._constants import (
    HANDLE_GENERATIONS,
    HANDLE_SLOTS,
    KIND_ADAPTER,
    KIND_CHECKPOINT,
    KIND_CONTEXT,
    KIND_MODEL,
)
from cowmlx.errors import OutOfMemory, UnknownHandle

NOUNS = {
    KIND_MODEL: "model",
    KIND_CONTEXT: "context",
    KIND_ADAPTER: "adapter",
    KIND_CHECKPOINT: "checkpoint",
}


class HandleTable:
    """Hands out ``kind | generation | slot`` (3, 12 and 16 bits; always positive).

    Slots are reused first in, first out, with the next generation; a slot whose
    generations are used up is retired, so a stale handle is never valid again.
    """

    def __init__(self) -> None:
        self._entries: dict[int, object] = {}
        self._free: deque[int] = deque()  # slot | generation to use next
        self._next_slot = 1

    def add(self, kind: int, value: object) -> int:
        """Return a new handle for ``value``.

        Raises:
            OutOfMemory: every slot is in use or retired.
        """
        if self._free:
            low = self._free.popleft()
        elif self._next_slot < HANDLE_SLOTS:
            low = self._next_slot
            self._next_slot += 1
        else:
            raise OutOfMemory(
                f"{len(self._entries)} handles are open, which is the most there can be"
            )
        handle = (kind * HANDLE_GENERATIONS * HANDLE_SLOTS) | low
        self._entries[handle] = value
        return handle

    def get(self, kind: int, handle: int) -> object:
        """Return the object of an open handle of this kind.

        Raises:
            UnknownHandle: it is not one.
        """
        value = self.find(kind, handle)
        if value is None:
            raise UnknownHandle(f"{handle} is not an open {NOUNS[kind]}")
        return value

    def find(self, kind: int, handle: int) -> object | None:
        """Return the object of an open handle of this kind, or None."""
        return self._entries.get(handle) if self.kind_of(handle) == kind else None

    def remove(self, kind: int, handle: int) -> object:
        """Close an open handle of this kind and return its object."""
        value = self.get(kind, handle)
        del self._entries[handle]
        low = handle % (HANDLE_GENERATIONS * HANDLE_SLOTS)
        if low + HANDLE_SLOTS < HANDLE_GENERATIONS * HANDLE_SLOTS:
            self._free.append(low + HANDLE_SLOTS)
        return value

    def handles(self, kind: int) -> list[int]:
        """Return the open handles of a kind."""
        return [handle for handle in self._entries if self.kind_of(handle) == kind]

    @staticmethod
    def kind_of(handle: int) -> int:
        """Return the kind written in a handle, open or not."""
        return handle // (HANDLE_GENERATIONS * HANDLE_SLOTS)
