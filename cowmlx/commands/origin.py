"""How the package came where it is, and so what puts it and its packages right.

No registry has cowmlx: nothing here may send anyone there for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
TREE = PACKAGE.parent

_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)")


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
    """Return how to install packages.

    Args:
        versions: the version of each.
        python: the one that they are for; this one if empty.
        options: of pip.
    """
    if by_make() and not python:
        return "make install again, in the source tree"
    named = (f"{name}=={version}" for name, version in versions.items())
    return " ".join([python or sys.executable, "-m pip install", *options, *named])


def chosen_python() -> str:
    """Return the Python of COWMLX_PYTHON_HOME; "" if that is not set."""
    home = os.environ.get("COWMLX_PYTHON_HOME")
    return str(Path(home, "bin", "python3")) if home else ""


def pins() -> dict[str, str]:
    """Return the versions that the package was made with, as far as they hold here."""
    try:
        if in_tree():
            text = (TREE / "pyproject.toml").read_text()
            lines = tomllib.loads(text)["project"]["dependencies"]
        else:
            lines = metadata.requires("cowmlx") or []
    except (metadata.PackageNotFoundError, OSError, ValueError, KeyError):
        return {}
    found = {}
    for line in lines:
        pin = _PIN.match(line)
        other = re.search(r"sys_platform\s*==\s*[\"'](\w+)[\"']", line)
        if pin and "extra" not in line and (not other or sys.platform == other[1]):
            found[normal(pin[1])] = pin[2]
    return found


def normal(name: str) -> str:
    """Return a distribution's name as it is compared."""
    return re.sub(r"[-_.]+", "-", name).lower()
