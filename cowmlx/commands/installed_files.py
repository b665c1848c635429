"""The files of ``make install``: which they are, and how they go.

The standard library is enough for it: ``make uninstall`` runs in trees where nothing is built.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ENGINE = "cowmlx"
LIBRARY = "libcowmlx.1.dylib" if sys.platform == "darwin" else "libcowmlx.so.1"
MANIFEST = "installed-files.txt"


def listed(engine: Path) -> list[Path]:
    """Return the files that the installation with this environment has outside of it.

    The paths are kept relative to the environment, so they hold in a DESTDIR and a moved prefix.
    """
    manifest = engine / MANIFEST
    lines = manifest.read_text().splitlines() if manifest.exists() else []
    return [Path(os.path.normpath(engine / line)) for line in lines]


def remove(path: Path) -> None:
    """Remove a file, and its folder if that was ours alone; or a folder that is empty."""
    if path.is_dir() and not path.is_symlink():
        if not any(path.iterdir()):
            path.rmdir()
        return
    path.unlink(missing_ok=True)
    if path.parent.name == ENGINE and path.parent.exists() and not any(path.parent.iterdir()):
        path.parent.rmdir()


def uninstall(engine: Path) -> None:
    """Remove an installation: its listed files, and its environment."""
    paths = listed(engine)
    going = engine.with_name(f".{engine.name}.{os.getpid()}")
    try:
        engine.rename(going)  # all or nothing, where this user may not remove it
    except OSError as error:
        sys.exit(f"uninstall: {error}; nothing was removed")
    left = []
    for path in paths:
        try:
            remove(path)
        except OSError as error:
            left.append(str(error))
    try:
        shutil.rmtree(going)
    except OSError as error:
        left.append(str(error))
    if left:
        sys.exit(f"uninstall: all but these was removed: {'; '.join(left)}")
    print(f"uninstalled {engine.parent / LIBRARY}")
