"""A C compiler for other systems: that of the package ``ziglang``."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = str(ROOT / "build/zig")
# Variables of its environment: a cache in the tree's build folder.
SETTINGS = {"ZIG_GLOBAL_CACHE_DIR": CACHE, "ZIG_LOCAL_CACHE_DIR": CACHE}


def headers_of_python(folder: Path) -> Path:
    """Copy this Python's headers into a folder, fit for other systems, and return their place.

    Only ``pyconfig.h`` is of one system. What the headers ask it for differs in sizes, and
    ``pymacconfig.h`` sets those for Apple's. Debian's chooses one by system: the chosen one is put
    in its place.
    """
    include = Path(sysconfig.get_path("include"))
    copy = folder / include.name
    shutil.copytree(include, copy)
    multiarch = sysconfig.get_config_var("MULTIARCH") or "."
    chosen = include.parent / multiarch / include.name / "pyconfig.h"
    if chosen.is_file():
        (copy / "pyconfig.h").unlink()
        shutil.copyfile(chosen, copy / "pyconfig.h")
    return copy


def command(triple: str, compiler: str = "cc") -> list[str]:
    """Return the beginning of a command that compiles for another system."""
    return [sys.executable, "-m", "ziglang", compiler, "-target", triple]


def environment() -> dict[str, str]:
    """Return this process's environment with its settings."""
    return {**os.environ, **SETTINGS}


def bridge_arguments(source: Path, output: Path, includes: list[Path]) -> list[str]:
    """Return what makes an extension module for a Mac, linked as CPython links them there."""
    options = ["-O2", "-fPIC", "-shared", "-undefined", "dynamic_lookup"]
    return [*options, *(f"-I{path}" for path in includes), str(source), "-o", str(output)]
