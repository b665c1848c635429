"""Folders that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress

from cowmlx.errors import InputOutput, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def whole(path: str, what: str) -> Iterator[str]:
    """Give a fresh folder beside ``path``, which takes that place at the end of the block.

    What was there stays until then, and for good if the block raises. Files are on the disk before
    the folder takes its place.

    Args:
        path: the folder; there is none, or it is empty, or one that ``what`` says.
        what: a file that a folder has which may be replaced: other folders are refused.

    Yields:
        the fresh folder.

    Raises:
        NotFound: the folder above does not exist.
        InputOutput: it cannot be written, or something else is there.
    """
    target = os.path.realpath(path)
    _check(path, target, what)
    fresh = _beside(target)
    try:
        os.mkdir(fresh)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"cannot write {path}: there is no folder {_above(target)}", file=path
        ) from None
    except OSError as exc:
        raise _unwritable(path, exc) from exc
    try:
        yield fresh
        _sync(fresh)
        _take_place(fresh, target)
    except OSError as exc:
        raise _unwritable(path, exc) from exc
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _above(target: str) -> str:
    return os.path.dirname(target)


def _beside(target: str) -> str:
    """Return the name of a folder that there is not."""
    return os.path.join(
        _above(target), f".{os.path.basename(target)}.partial-{os.urandom(8).hex()}"
    )


def _check(path: str, target: str, what: str) -> None:
    try:
        inside = os.listdir(target)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise _unwritable(path, exc) from exc
    if inside and what not in inside:
        raise InputOutput(
            f"cannot write {path}: the folder has other files ({min(inside)}), and no {what}; name "
            "a new folder",
            reason="write_failed",
            file=path,
        )


def _take_place(fresh: str, target: str) -> None:
    """Rename a folder; what was there goes, once the new one is in its place."""
    try:
        os.rename(fresh, target)  # nothing is there, or an empty folder
    except OSError:
        if not os.path.isdir(target):
            raise
        old = _beside(target)
        os.rename(target, old)
        try:
            os.rename(fresh, target)
        except OSError:
            os.rename(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    with suppress(OSError):
        _sync_one(_above(target))


def _sync(folder: str) -> None:
    for place, _, files in os.walk(folder):
        for name in files:
            _sync_one(os.path.join(place, name))
        _sync_one(place)


def _sync_one(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(path: str, exc: OSError) -> InputOutput:
    return InputOutput(
        f"cannot write {path}: {exc.strerror or exc}", reason="write_failed", file=path
    )
