"""The calls of arrays, on the library of the process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.arrays import Arrays
from support.library import Library


@pytest.fixture(scope="module")
def arrays(lib: Library) -> Iterator[Arrays]:
    """The calls; a module's tests leave as many arrays open as they have found."""
    before = lib.info()["handles"]["array"]
    yield Arrays(lib)
    assert lib.info()["handles"]["array"] == before
