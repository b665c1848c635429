"""Elixir, from the PATH or in the root of another release that COWMLX_SWIFT_ROOT names."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.compiler import require, run
from support.paths import CALF, LIBRARY, ROOT
from support.swift import IN_ROOT

PACKAGE = ROOT / "bindings/elixir"
SCRATCH = ROOT / "build/elixir"
NEEDED = (1, 18)


class Elixir:
    """Runs Elixir's programs on the package.

    Args:
        prefix: the command that runs another one where Elixir is.
        library: the library that is opened there.
    """

    def __init__(self, prefix: list[str], library: Path):
        self.prefix = prefix
        self.library = library

    def run(self, *command: object, **options) -> subprocess.CompletedProcess[str]:
        """Run a command where Elixir is, in the package's folder."""
        environment = {
            **os.environ,
            "COWMLX_LIBRARY": str(self.library),
            "COWMLX_TEST_MODEL": str(CALF),
            "LC_ALL": "C.UTF-8",
            "HEX_OFFLINE": "1",
            "MIX_HOME": str(SCRATCH / "mix"),
            "MIX_BUILD_ROOT": str(SCRATCH),
            **options.pop("env", {}),
        }
        settings = {"cwd": PACKAGE, "env": environment, "timeout": 600, **options}
        return run([*self.prefix, *map(str, command)], **settings)


def find_elixir(bundle: Callable[[], Path]) -> Elixir:
    """Elixir, or skip the test and name what is missing.

    Args:
        bundle: makes a bundle and returns its folder; a root's Python is not this one, so the
            library comes there with a Python.
    """
    if root := os.environ.get("COWMLX_SWIFT_ROOT"):
        require("unshare")
        prefix = [str(IN_ROOT), root]
        done = run([*prefix, "elixir", "--version"])
        if done.returncode:
            pytest.skip(f"elixir does not run in the root {root}: {done.stderr.strip()}")
        found = done.stdout
    else:
        prefix, found = [], run([require("elixir"), "--version"]).stdout
    version = re.search(r"Elixir (\d+)\.(\d+)", found)
    if not version or tuple(map(int, version.groups())) < NEEDED:
        pytest.skip(f"elixir is {found.strip()}; {'.'.join(map(str, NEEDED))} is needed")
    return Elixir(prefix, bundle() / "lib" / LIBRARY.name if prefix else LIBRARY)
