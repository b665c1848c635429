"""Files that the library keeps: private ones, and partial ones while they are written.

A partial file or folder is locked as long as its writer lives. One without a lock is left from a
writer that was killed, and is removed.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from contextlib import suppress

from cowmlx.folders.opening import without_waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

_PARTIAL = re.compile(r"\.cow_mlx-[0-9a-f]{16}\.partial")
# Names of a folder that are looked at in one step.
_SWEPT = 1000


def is_private(status: os.stat_result) -> bool:
    """Whether this is a regular file of the user that nobody else may write."""
    return (
        stat.S_ISREG(status.st_mode)
        and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        and status.st_uid == os.geteuid()
    )


def open_private(path: str) -> int:
    """Open a file of the user for reading, and never where a link leads.

    Raises:
        OSError: there is none, or others may write it.
    """
    descriptor = without_waiting(path, os.O_NOFOLLOW)
    if is_private(os.fstat(descriptor)):
        return descriptor
    os.close(descriptor)
    raise PermissionError("it is not a file of this user's alone")


def create_partial(folder: str, mode: int = 0o666) -> tuple[int, str]:
    """Open a new file for writing, and lock it.

    It is in the folder of the file to replace, since a rename across file systems copies.

    Args:
        folder: to make it in.
        mode: who may read it, less the process's mask.

    Returns:
        its descriptor and its path.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    while True:
        path = os.path.join(folder, f".cow_mlx-{os.urandom(8).hex()}.partial")
        try:
            descriptor = os.open(path, flags, mode)
        except FileExistsError:
            continue
        if lock(descriptor) is not False and is_at(descriptor, path):
            return descriptor, path
        os.close(descriptor)  # a sweep came between: it removes the file


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    with suppress(OSError):
        os.unlink(path)


def sweep(folder: str) -> Generator[None, None, None]:
    """Remove partial files of writers that were killed, in bounded steps."""
    with suppress(OSError), os.scandir(folder) as entries:
        for index, entry in enumerate(entries):
            if _PARTIAL.fullmatch(entry.name):
                _remove_if_left(entry.path)
            if index % _SWEPT == _SWEPT - 1:
                yield


def _remove_if_left(path: str) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if lock(descriptor):
                os.unlink(path)
        finally:
            os.close(descriptor)


def lock(descriptor: int) -> bool | None:
    """Lock a file or folder until it is closed: false if it is locked, None if that cannot be.

    Some network file systems have no locks; nothing is ever swept there.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def is_at(descriptor: int, path: str) -> bool:
    """Whether a path leads to an open file or folder itself."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(status, os.fstat(descriptor))
