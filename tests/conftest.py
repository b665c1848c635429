"""Fixtures: the library in this process's interpreter, a model and a context."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from support.library import Library
from support.paths import CALF, LIBRARY

# As the library sets it where it imports mlx itself: products of float32 on an NVIDIA GPU.
os.environ.setdefault("MLX_ENABLE_TF32", "0")
# Hypothesis draws the same examples in every run; `--hypothesis-profile search` draws others.
settings.register_profile("same", derandomize=True, database=None)
settings.register_profile("search", derandomize=False, database=None, print_blob=True)
settings.load_profile("same")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker run the tests that share a fixture of their file, so that it is made once."""
    for item in items:
        if not isinstance(item, pytest.Function) or item.get_closest_marker("xdist_group"):
            continue
        made = item._fixtureinfo.name2fixturedefs
        if any(each.scope == "module" for name in item.fixturenames for each in made.get(name, ())):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_collection_finish() -> None:
    """Let garbage collections pass over all that pytest has made: they took half a second each."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def lib() -> Iterator[Library]:
    """The library, its runtime started once for all tests of the process."""
    if not LIBRARY.exists():
        pytest.fail(f"{LIBRARY} is not built: run make")
    library = Library()
    library.start()
    yield library
    library.stop()


@pytest.fixture(scope="session")
def calf(lib: Library) -> int:
    """The handle of models/calf."""
    if not (CALF / "config.json").exists():
        pytest.skip(f"{CALF} is missing")
    return lib.load(CALF)


@pytest.fixture
def context(lib: Library, calf: int) -> Iterator[int]:
    """A context on models/calf that is freed afterwards."""
    handle = lib.context(calf)
    yield handle
    lib.free(handle)
