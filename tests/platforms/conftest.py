"""Fixtures: the library compiled for other systems, once for all tests of one."""

from __future__ import annotations

import pytest
from cross import LINUX_ARM, MACS, Cross, made


@pytest.fixture(scope="session", params=MACS)
def mac(request, tmp_path_factory) -> Cross:
    """A Mac of either kind."""
    return made(request.param, tmp_path_factory.mktemp("mac"))


@pytest.fixture(scope="session")
def apple_silicon(tmp_path_factory) -> Cross:
    """The Mac that mlx runs on."""
    return made(MACS[0], tmp_path_factory.mktemp("apple-silicon"))


@pytest.fixture(scope="session")
def linux_arm(tmp_path_factory) -> Cross:
    """Linux on ARM."""
    return made(LINUX_ARM, tmp_path_factory.mktemp("linux-arm"))
