"""Swift, and the package of bindings/swift."""

from __future__ import annotations

import pytest
from support.swift import Swift, find_swift

from cowmlx.commands.bundle.assemble import Options, assemble


@pytest.fixture(scope="session")
def swift(tmp_path_factory) -> Swift:
    """Runs Swift on the package; skips the test where there is none."""

    def bundle():
        folder = tmp_path_factory.mktemp("swift") / "bundle"
        assemble(folder, Options())
        return folder

    return find_swift(bundle)
