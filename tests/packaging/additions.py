"""Additions to a copy of the tree, which is then built."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from support.compiler import run
from support.hosts import linked
from support.paths import ROOT


def edit(tree: Path, name: str, before: str, text: str) -> None:
    path = tree / name
    content = path.read_text()
    assert content.count(before) == 1, (name, before)
    path.write_text(content.replace(before, f"{text}\n{before}"))


def compiled(tree: Path, library: Path, source: Path, *compiler: str) -> Path:
    """A host of the tree's library."""
    host = source.with_suffix("")
    folders = [f"-I{tree / folder}" for folder in ("include", "bindings/cpp")]
    strict = ["-Wall", "-Wextra", "-Werror"]
    done = run([*compiler, *strict, *folders, source, *linked(library), "-o", host])
    assert done.returncode == 0, done.stderr
    return host


def add_the_rest(tree: Path) -> None:
    """Bring the bindings and the tests, which the copy of a tree for packages lacks."""
    left_out = shutil.ignore_patterns("__pycache__", "node_modules", "target", ".build")
    for name in ("node", "java", "go", "rust", "swift", "elixir"):
        shutil.copytree(ROOT / "bindings" / name, tree / "bindings" / name, ignore=left_out)
    shutil.copytree(ROOT / "tests", tree / "tests", ignore=left_out)
    (tree / "models").symlink_to(ROOT / "models")


def built(tree: Path, edits: Sequence[tuple[str, str, str]]) -> Path:
    """The library of the tree after edits: a file, a place in it, and the text that goes before."""
    add_the_rest(tree)
    for name, before, text in edits:
        edit(tree, name, before, text)
    for command in (
        [sys.executable, "tools/bindings/generate.py"],
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
    ):
        # Kernels take most of a build, and no addition goes through them.
        done = run(command, cwd=tree, env={**os.environ, "COWMLX_KERNELS": "off"})
        assert done.returncode == 0, done.stdout + done.stderr
    return next((tree / "cowmlx/lib").glob("libcowmlx.*1*"))
