"""Whether the Python that runs a command has what the engine needs, and which one has.

In a source tree every Python imports this package, since it lies in the working folder.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def wrong() -> str:
    """Say which Python this is and what it lacks; "" if nothing."""
    try:
        found = importlib.util.find_spec("mlx.core")  # any folder of the name mlx is a package
    except ModuleNotFoundError:
        found = None
    return "" if found else f"this is {sys.executable or 'a Python'}, which has no mlx"


def right() -> str:
    """Say which Python to use in its place."""
    for folder in (PACKAGE.parent / ".venv", *PACKAGE.parents):
        python = folder / "bin" / "python"
        if not (folder / "pyvenv.cfg").is_file() or not python.exists():
            continue
        if folder.samefile(sys.prefix):
            return f"{python} -m cowmlx doctor tells what to install"
        return f"use {python}"
    return (
        "use .venv/bin/python of the source tree after make, LIBDIR/cowmlx/bin/python after make "
        "install, or the Python that pip installed cowmlx into"
    )
