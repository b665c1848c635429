"""What ``make packages`` makes, one kind at a time, from what is built in this tree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.compiler import require, run
from support.paths import LIBRARY, ROOT

BUILT = [".venv/.runtime", ".venv/.tools", "build/.compiled", str(LIBRARY.relative_to(ROOT))]


def made(target: str, folder: Path, *arguments: str) -> Path:
    """The folder, where a target of the Makefile has put its packages; nothing else is built."""
    if not (ROOT / ".venv").exists():
        pytest.skip("there is no .venv: the library was not built by make")
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    old = [word for path in BUILT for word in ("-o", path)]
    command = [require("make"), "-C", ROOT, *old, target, f"DIST={folder}", *arguments]
    done = run(command, env=env, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
