"""The folder in which a bundle is written, beside its place, and rests of earlier ones."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

OLD = "replaced"  # holds a bundle that is being replaced, until the new one is in its place
_LOCK = "lock"  # held by the process that writes, so the system lets go of it if that dies


@contextlib.contextmanager
def beside(target: Path) -> Iterator[Path]:
    """Yield an empty folder on the file system of ``target``, and remove it at the end.

    Folders that killed processes left of the same target are removed first.

    Raises:
        OSError: the folder of ``target`` cannot be written into.
    """
    _sweep(target)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    lock = None
    try:
        lock = _locked(staging)
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def put_in_place(folder: Path, target: Path, aside: Path) -> None:
    """Rename a finished bundle; the previous one comes back if that fails."""
    try:
        if target.exists():
            target.rename(aside)
        folder.rename(target)
    except BaseException:  # a signal's too
        if aside.exists() and not target.exists():
            aside.rename(target)
        raise


def _locked(staging: Path) -> int | None:
    """Lock a new folder, before others can see that it has a lock."""
    fresh = staging / f"{_LOCK}.new"
    lock = os.open(fresh, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # a file system without locks: no process sweeps this
        os.close(lock)
        return None
    fresh.rename(staging / _LOCK)
    return lock


def _sweep(target: Path) -> None:
    """Remove the folders of this target that no living process writes into; if in doubt, none."""
    name = re.compile(re.escape(f".{target.name}.") + r"[a-z0-9_]{8}")
    for path in sorted(target.parent.iterdir()):
        if name.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):
                _sweep_one(path, target)


def _sweep_one(staging: Path, target: Path) -> None:
    if not {path.name for path in staging.iterdir()} <= {_LOCK, OLD, target.name}:
        return
    if (staging / OLD).exists() and not target.exists():
        return  # the only copy of a bundle
    lock = os.open(staging / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process lives
        for name in (OLD, target.name):
            if (staging / name).exists():
                shutil.rmtree(staging / name)
        shutil.rmtree(staging)  # the lock last, so that what could not go now goes next time
    finally:
        os.close(lock)
