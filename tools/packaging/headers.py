"""The public headers: their paths in the tree, by the names that hosts include.

As a program it prints the paths, for the Makefile.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["include", "bindings/cpp"]


def headers(root: Path = ROOT) -> dict[str, Path]:
    """Return the path of every public header by its name, such as cow_mlx/base.h."""
    return {
        path.relative_to(root / folder).as_posix(): path
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*.h*"))
    }


def copy_headers(folder: Path) -> None:
    """Copy the headers into a new folder."""
    for name, path in headers().items():
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())


def link_headers(folder: Path) -> None:
    """Gather the headers in a folder of the tree, as links, anew."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, path in headers().items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(path, link.parent))


if __name__ == "__main__":
    sys.stdout.write("".join(f"{path.relative_to(ROOT)}\n" for path in headers().values()))
