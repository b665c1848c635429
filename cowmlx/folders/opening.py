"""Opens files for reading and waits for no pipe or device."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress

# Samba and NFS servers hold leases on files. One is asked back by the first try, and given back
# within milliseconds. The kernel would wait for up to 45 s. All calls wait meanwhile.
_LEASE_SECONDS = 0.25
_PAUSE = 0.005


def without_waiting(path: str, flags: int = 0) -> int:
    """Open a file for reading and return its descriptor.

    Without O_NONBLOCK, a pipe that nobody writes to would block for ever. A regular file that is
    leased to another process is tried again for a quarter of a second.

    Args:
        path: the file.
        flags: further ones of :func:`os.open`.

    Raises:
        OSError: it cannot be opened.
    """
    flags |= os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    deadline = time.monotonic() + _LEASE_SECONDS
    while True:
        with suppress(BlockingIOError):  # in a chain of errors, it would mean too few threads
            return os.open(path, flags)
        if not stat.S_ISREG(os.stat(path).st_mode) or time.monotonic() > deadline:
            raise OSError(errno.EBUSY, "another process holds a lease on it", path)
        time.sleep(_PAUSE)
