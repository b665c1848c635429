"""Fixtures: tiny models on disk, and plain mlx-lm's answers about them."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from loading import reference
from support import tiny_models


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder for the whole session."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def llama(tmp_path: pathlib.Path) -> pathlib.Path:
    """A tiny llama that a test may damage."""
    return tiny_models.make(tmp_path / "llama", "llama")


@pytest.fixture(scope="session")
def ask(folder: pathlib.Path) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Plain mlx-lm's answers."""
    return lambda requests: reference(requests, folder)
