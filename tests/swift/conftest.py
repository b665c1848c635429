"""Swift, and the package of bindings/swift."""

from __future__ import annotations

import pytest
from support.bundles import shared_bundle
from support.swift import Swift, find_swift


@pytest.fixture(scope="session")
def swift(tmp_path_factory) -> Swift:
    """Runs Swift on the package; skips the test where there is none."""
    return find_swift(lambda: shared_bundle(tmp_path_factory))
