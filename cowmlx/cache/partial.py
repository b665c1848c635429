"""Files that are being written, beside the file that they replace when they are whole.

Whoever writes one holds its lock, so one that can be locked was left by a process that was killed.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

_PREFIX, _SUFFIX = ".cow_mlx-", ".partial"
# Names of a folder that are looked at in one step.
_NAMES = 1000


def create(folder: str) -> tuple[int, str]:
    """Open a new file for writing, and lock it.

    It is in the folder of the file to replace, since a rename across file systems copies.

    Returns:
        its descriptor and its path.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    while True:
        path = os.path.join(folder, f"{_PREFIX}{os.urandom(8).hex()}{_SUFFIX}")
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileExistsError:
            continue
        if _locked(descriptor) is not False and _is_at(descriptor, path):
            return descriptor, path
        os.close(descriptor)  # a sweep came between: it removes the file


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    with suppress(OSError):
        os.unlink(path)


def sweep(folder: str) -> Generator[None, None, None]:
    """Remove what writers that were killed have left in a folder, in bounded steps."""
    with suppress(OSError), os.scandir(folder) as entries:
        for index, entry in enumerate(entries):
            if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX):
                _remove_if_left(entry.path)
            if index % _NAMES == _NAMES - 1:
                yield


def _remove_if_left(path: str) -> None:
    with suppress(OSError):
        # Without O_NONBLOCK a pipe of that name would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if _locked(descriptor):
                os.unlink(path)
        finally:
            os.close(descriptor)


def _locked(descriptor: int) -> bool | None:
    """Take a file's lock, which ends with its writer: false if it is taken, None if there is none.

    Some network file systems have no locks; nothing is ever swept there.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(descriptor: int, path: str) -> bool:
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))
