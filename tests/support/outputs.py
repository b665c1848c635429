"""Outputs that know whether a call has written to them."""

from __future__ import annotations

from ctypes import (
    POINTER,
    addressof,
    byref,
    c_char,
    c_size_t,
    cast,
    memset,
    sizeof,
    string_at,
)
from typing import Any

POISON = 0xA5


def poisoned(kind: Any) -> Any:
    """An object of a ctypes type, every byte of it POISON."""
    output = kind()
    memset(addressof(output), POISON, sizeof(output))
    return output


def poisoned_struct(kind: Any) -> Any:
    """A struct that has its size, every other byte of it POISON."""
    output = poisoned(kind)
    output.struct_size = sizeof(output)
    return output


def untouched(output: Any) -> bool:
    """Whether no byte that :func:`poisoned` filled has changed."""
    data = string_at(addressof(output), sizeof(output))
    start = sizeof(c_size_t) if hasattr(output, "struct_size") else 0
    return data.count(POISON, start) == len(data) - start


class Buffer:
    """A buffer for (buffer, capacity, length), with a guard behind its end.

    Args:
        element: the ctypes type of one element.
        capacity: the elements that the call may write; 0 passes NULL.
    """

    GUARD = 16

    def __init__(self, element: Any, capacity: int):
        self.capacity = capacity
        self.element = element
        self.data = poisoned(element * (capacity + self.GUARD))
        self.length = poisoned(c_size_t)

    def arguments(self) -> tuple[Any, int, Any]:
        """What the call is given."""
        pointer = cast(self.data, POINTER(self.element)) if self.capacity else None
        return pointer, self.capacity, byref(self.length)

    def value(self) -> Any:
        """The result: bytes of text, or a list."""
        return self.data[: self.length.value]

    def check(self, written: int, *, terminated: bool = True) -> None:
        """Fail unless exactly ``written`` elements, and a text's NUL, were written."""
        data = string_at(addressof(self.data), sizeof(self.data))
        end = written * sizeof(self.element)
        if self.element is c_char and written < self.capacity:
            assert data[end] == 0 or not terminated, "no NUL, though there is room"
            end += 1
        assert all(byte == POISON for byte in data[end:]), "written beyond the result"

    def check_untouched(self, *, size_allowed: bool) -> None:
        """Fail if a call that failed has written anything but the size needed."""
        assert untouched(self.data), "the buffer was written"
        assert size_allowed or untouched(self.length), "the length was written"
