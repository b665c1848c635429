"""A bundle for the tests of a run that need one in another root."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from cowmlx.commands.bundle.assemble import Options, assemble


def shared_bundle(temporary: pytest.TempPathFactory) -> Path:
    """The folder of a whole bundle: the first test that asks makes it for all workers."""
    base = temporary.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / "shared-bundle"
    with (base / "shared-bundle.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            assemble(base / "new-bundle", Options())
            (base / "new-bundle").rename(folder)
    return folder
