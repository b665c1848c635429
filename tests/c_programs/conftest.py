"""The calls of programs, on the library of the process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.arrays import Arrays
from support.c_programs import Programs
from support.library import Library


@pytest.fixture(scope="module")
def arrays(lib: Library) -> Iterator[Arrays]:
    """The calls of arrays."""
    yield Arrays(lib)


@pytest.fixture
def programs(lib: Library) -> Iterator[Programs]:
    """The calls; a test leaves as many programs open as it has found."""
    before = lib.info()["handles"]["program"]
    yield Programs(lib)
    assert lib.info()["handles"]["program"] == before
