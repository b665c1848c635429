"""Elixir, and the package of bindings/elixir."""

from __future__ import annotations

import pytest
from support.elixir import Elixir, find_elixir

from cowmlx.commands.bundle.assemble import Options, assemble


@pytest.fixture(scope="session")
def elixir(tmp_path_factory) -> Elixir:
    """Runs Elixir on the package; skips the test where there is none."""

    def bundle():
        folder = tmp_path_factory.mktemp("elixir") / "bundle"
        assemble(folder, Options())
        return folder

    return find_elixir(bundle)
