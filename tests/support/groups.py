"""Control groups for memory, of either version, where this process may make them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


@contextmanager
def made() -> Iterator[Path | None]:
    """A new group, removed afterwards; None where none can be made."""
    folder = _make()
    yield folder
    if folder is not None:
        folder.rmdir()


def _make() -> Path | None:
    for parent, limit in ((ROOT, "memory.max"), (ROOT / "memory", "memory.limit_in_bytes")):
        folder = parent / f"cowmlx-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if os.access(folder / limit, os.W_OK):
            return folder
        folder.rmdir()
    return None


def enter(folder: Path) -> None:
    """Move this process into a group."""
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def peak(folder: Path) -> int:
    """The most bytes that a group has had."""
    return int(_first(folder, "memory.peak", "memory.max_usage_in_bytes").read_text())


def usage(folder: Path) -> int:
    """The bytes that a group has."""
    return int(_first(folder, "memory.current", "memory.usage_in_bytes").read_text())


def bound(folder: Path, size: int) -> None:
    """Let a group have so many bytes."""
    _first(folder, "memory.max", "memory.limit_in_bytes").write_text(str(size))


def _first(folder: Path, *names: str) -> Path:
    return next(folder / name for name in names if (folder / name).exists())
