"""Elixir, and the package of bindings/elixir."""

from __future__ import annotations

import pytest
from support.bundles import shared_bundle
from support.elixir import Elixir, find_elixir


@pytest.fixture(scope="session")
def elixir(tmp_path_factory) -> Elixir:
    """Runs Elixir on the package; skips the test where there is none."""
    return find_elixir(lambda: shared_bundle(tmp_path_factory))
