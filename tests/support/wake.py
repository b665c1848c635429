"""A context's wake descriptor, as event loops use it."""

from __future__ import annotations

import select
from ctypes import byref, c_int32

from support.library import Library
from support.outputs import poisoned


def readable(fd: int, seconds: float | None = 0) -> bool:
    """Whether a descriptor can be read within a time; None waits for ever."""
    return bool(select.select([fd], [], [], seconds)[0])


def wake_fd(lib: Library, context: int) -> int:
    """The descriptor of a context."""
    out = poisoned(c_int32)
    lib.check(lib.c.cow_mlx_context_wake_fd(context, byref(out)), out)
    return out.value
