"""The calls of trainings, on the library of the process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.library import Library
from support.trainings import Trainings


@pytest.fixture
def trainings(lib: Library) -> Iterator[Trainings]:
    """The calls; a test leaves as many handles open as it has found."""
    before = lib.info()["handles"]
    yield Trainings(lib)
    assert lib.info()["handles"] == before
