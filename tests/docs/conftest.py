"""Fixtures of the documentation: a folder to run a page's blocks in, and the built site."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.compiler import run
from support.paths import LIBRARY, ROOT

SHIMS = ROOT / "tests/docs/shims"


@pytest.fixture
def workspace(tmp_path) -> Iterator[Path]:
    """A folder with ``build`` and ``models`` as here, where every block of a page runs."""
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "build").mkdir()
    (folder / "models").symlink_to(ROOT / "models")
    yield folder
    shutil.rmtree(folder)  # what blocks build there is large


@pytest.fixture
def environment(tmp_path) -> Iterator[dict[str, str]]:
    """What blocks see: this Python, an empty HOME, and commands of pages that would go far."""
    (tmp_path / "home").mkdir()
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    folders = [SHIMS, tmp_path / "bin", os.environ["PATH"]]
    yield {
        "PATH": os.pathsep.join(map(str, folders)),
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(ROOT),
        "REPOSITORY": str(ROOT),
        "COWMLX_LIBRARY": str(LIBRARY),
        "REAL_MAKE": shutil.which("make") or "make",
        "LANG": "C.UTF-8",
    }
    shutil.rmtree(tmp_path / "home")  # an installation there is large


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The site, built as ``make docs`` does."""
    pytest.importorskip("material", reason="mkdocs-material is not installed: run make docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = run([*command, "--site-dir", folder], cwd=ROOT, env=quiet)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
