"""Taking away what ``make install`` put here, with or without its source tree."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

from cowmlx.commands.installation import LIBRARY, PACKAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

ENGINE = "cowmlx"
MANIFEST = "installed-files.txt"


def listed(engine: Path) -> list[Path]:
    """Return what the installation with this environment has put outside of it.

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
    """Take away an installation: what is listed, and its environment."""
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
    shutil.rmtree(going)
    if left:
        sys.exit(f"uninstall: all but these was removed: {'; '.join(left)}")
    print(f"uninstalled {engine.parent / LIBRARY}")


def _other_way() -> str:
    """Return how a package goes that ``make install`` did not put here."""
    tree = PACKAGE.parent
    if (tree / "pyproject.toml").is_file():
        return (
            f"{tree} is a source tree: make clean removes what was built in it. What make install "
            "has put elsewhere is uninstalled by its own Python, LIBDIR/cowmlx/bin/python"
        )
    with contextlib.suppress(metadata.PackageNotFoundError):
        if metadata.distribution("cowmlx").read_text("INSTALLER"):
            return f"pip installed this package: run {sys.executable} -m pip uninstall cowmlx"
    return f"make install did not put this package here: remove {PACKAGE} as it came"


def _run(arguments: argparse.Namespace) -> int:
    engine = Path(sys.prefix)
    if not (engine / MANIFEST).exists():
        sys.exit(f"uninstall: {_other_way()}")
    uninstall(engine)
    return 0


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``uninstall``."""
    text = "Remove what make install has put where this Python is."
    commands.add_parser("uninstall", help=text, description=text).set_defaults(run=_run)
