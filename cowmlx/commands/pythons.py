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


def own() -> Path | None:
    """Return the Python of the environment that the package was built or installed into."""
    for folder in (PACKAGE.parent / ".venv", *PACKAGE.parents):
        python = folder / "bin" / "python"
        if (folder / "pyvenv.cfg").is_file() and python.exists():
            return python
    return None


def is_own() -> bool:
    """Whether this Python is that one."""
    python = own()
    return python is not None and python.parent.parent.samefile(sys.prefix)


def right() -> str:
    """Say which Python to use in its place."""
    if is_own():
        return f"{own()} -m cowmlx doctor tells what to install"
    if python := own():
        return f"use {python}"
    return (
        "use .venv/bin/python of the source tree after make, LIBDIR/cowmlx/bin/python after make "
        "install, or the Python that pip install . was run with"
    )
