"""The origin of the package, the Python that it needs, and how to repair both.

No registry has cowmlx: no advice here may name one. In a source tree every Python
imports this package, since it lies in the working folder.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from cowmlx.commands.terminal import CommandError

PACKAGE = Path(__file__).resolve().parent.parent
TREE = PACKAGE.parent
MAC = sys.platform == "darwin"

_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)")


def headers() -> Path | None:
    """Return the folder of the public headers."""
    folders = (PACKAGE / "include", TREE / "include")
    return next((folder for folder in folders if (folder / "cow_mlx.h").is_file()), None)


def in_tree() -> bool:
    """Whether this is the package of a source tree."""
    return (PACKAGE / "bridge/bridge.pyx").is_file() and (TREE / "pyproject.toml").is_file()


def by_make() -> bool:
    """Whether make install has put the package here, into an environment without pip."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.distribution("cowmlx").read_text("INSTALLER") == "make\n"
    return False


def again() -> str:
    """Return how to install the package again."""
    if in_tree():
        return f"build again: make clean and make, in {TREE}"
    if by_make():
        return "run make install again, in the source tree"
    return "run pip install --force-reinstall --no-deps . again, in the source tree"


def install(versions: dict[str, str], python: str = "", *options: str) -> str:
    """Return how to install packages; "" is this Python."""
    if by_make() and not python:
        return "make install again, in the source tree"
    named = (f"{name}=={version}" for name, version in versions.items())
    return " ".join([python or sys.executable, "-m pip install", *options, *named])


def chosen_python() -> str:
    """Return the Python of COWMLX_PYTHON_HOME; "" if that is not set."""
    home = os.environ.get("COWMLX_PYTHON_HOME")
    return str(Path(home, "bin", "python3")) if home else ""


def pins() -> dict[str, str]:
    """Return the versions that the package was made with; {} for a copied package."""
    try:
        if in_tree():
            text = (TREE / "pyproject.toml").read_text()
            lines = tomllib.loads(text)["project"]["dependencies"]
        else:
            lines = metadata.requires("cowmlx") or []
    except (metadata.PackageNotFoundError, OSError, ValueError, KeyError):
        return {}
    versions = {}
    for line in lines:
        pin = _PIN.match(line)
        other = re.search(r"sys_platform\s*==\s*[\"'](\w+)[\"']", line)
        if pin and "extra" not in line and (not other or sys.platform == other[1]):
            versions[normal(pin[1])] = pin[2]
    return versions


def normal(name: str) -> str:
    """Return a distribution's name in the form for comparisons."""
    return re.sub(r"[-_.]+", "-", name).lower()


def require_python() -> None:
    """Check that the Python that runs a command has mlx.

    Raises:
        CommandError: it has not; the message names the right one.
    """
    if lack := python_lack():
        raise CommandError(f"{lack}; {right_python()}")


def python_lack() -> str:
    """Return which Python this is and what it lacks; "" if nothing."""
    try:
        spec = importlib.util.find_spec("mlx.core")  # any folder of the name mlx is a package
    except ModuleNotFoundError:
        spec = None
    return "" if spec else f"this is {sys.executable or 'a Python'}, which has no mlx"


def own_python() -> Path | None:
    """Return the Python of the environment that the package was built or installed into."""
    for folder in (TREE / ".venv", *PACKAGE.parents):
        python = folder / "bin" / "python"
        if (folder / "pyvenv.cfg").is_file() and python.exists():
            return python
    return None


def is_own_python() -> bool:
    """Whether this Python is that one."""
    python = own_python()
    return python is not None and python.parent.parent.samefile(sys.prefix)


def right_python() -> str:
    """Return which Python to use in place of this one."""
    if is_own_python():
        return f"{own_python()} -m cowmlx doctor says what to install"
    if python := own_python():
        return f"use {python}"
    return (
        "use .venv/bin/python of the source tree after make, LIBDIR/cowmlx/bin/python after make "
        "install, or the Python that pip install . was run with"
    )
