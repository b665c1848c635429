"""An installed prefix, made from a copy of the tree that is gone afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefixes import Prefix, copied_tree, make
from support.paths import CALF
from support.streamed import story

from cowmlx.commands.bundle.assemble import Options, assemble

__all__ = ["story"]


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """A plain environment: nothing that speaks to Python."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


@pytest.fixture
def tree(tmp_path) -> Iterator[Path]:
    """A copy of the built tree."""
    copy = copied_tree(tmp_path / "tree")
    yield copy
    shutil.rmtree(copy)


@pytest.fixture(scope="session")
def installed(tmp_path_factory, environment) -> Iterator[Prefix]:
    """An installation that was staged, as packagers do, and moved; its tree is gone."""
    folder = tmp_path_factory.mktemp("installed")
    tree = copied_tree(folder / "tree")
    done = make(tree, "install", "PREFIX=/opt/cow", f"DESTDIR={folder / 'stage'}")
    assert done.returncode == 0, done.stdout + done.stderr
    prefix = (folder / "stage/opt/cow").rename(folder / "prefix")
    shutil.rmtree(tree)
    yield Prefix(prefix, environment)
    shutil.rmtree(folder)  # it is large


@pytest.fixture(scope="session")
def bundle(tmp_path_factory) -> Iterator[Path]:
    """What packages bring that hold a whole engine; without its largest part, to be quick."""
    folder = tmp_path_factory.mktemp("bundled") / "bundle"
    assemble(folder, Options(without=frozenset(["openblas"])))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def model() -> Path:
    """The model that hosts load."""
    if not (CALF / "config.json").exists():
        pytest.skip(f"{CALF} is missing")
    return CALF
