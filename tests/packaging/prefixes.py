"""Prefixes that make install fills, and hosts that are built with them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from support.compiler import require, run
from support.paths import LIBRARY, ROOT

TREE = ["Makefile", "LICENSE", "README.md", "pyproject.toml", "setup.py"]
TREE += ["bindings/cpp", "cowmlx", "csrc", "include", "tools"]


@dataclass(frozen=True)
class Prefix:
    """Where an installation lies."""

    path: Path
    environment: dict[str, str]
    libdir: str = "lib"

    @property
    def lib(self) -> Path:
        """Where the library is."""
        return self.path / self.libdir

    def pkg_config(self, *options: str) -> list[str]:
        """What pkg-config prints for a host."""
        env = {**self.environment, "PKG_CONFIG_PATH": str(self.lib / "pkgconfig")}
        done = run([require("pkg-config"), *options, "cowmlx"], env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def compiled(self, source: Path, program: Path) -> Path:
        """A C host, built with what pkg-config says."""
        self.run([require("cc"), source, "-o", program, *self.pkg_config("--cflags", "--libs")])
        return program

    def run(self, command: list, **options) -> CompletedProcess[str]:
        """Run a program in a plain environment; it must end well."""
        done = run(command, env=self.environment, **options)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done


def make(folder: Path, *arguments: str) -> CompletedProcess[str]:
    """Run make in a copy of the tree, whatever make these tests run in; nothing is built anew."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    built = ("-o", ".venv/.runtime", "-o", LIBRARY.relative_to(ROOT))
    return run([require("make"), "-C", folder, *built, *arguments], env=env)


def copied_tree(target: Path) -> Path:
    """A copy of the built tree, with the same packages."""
    if not (ROOT / ".venv").exists():
        pytest.skip("there is no .venv: the library was not built by make")
    target.mkdir(parents=True)
    for name in TREE:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, target / name)
    (target / ".venv").symlink_to(ROOT / ".venv")
    (target / "build").mkdir()
    if (ROOT / "build/.compiled").exists():
        shutil.copy2(ROOT / "build/.compiled", target / "build")
    return target
