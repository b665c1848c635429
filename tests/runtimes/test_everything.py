"""Every binding does everything: what each host prints is what C gives for the same calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from everything import expected
from outside import command
from support.paths import CALF, LIBRARY, ROOT

HOSTS = ROOT / "tests/runtimes/hosts"
PLACES = (LIBRARY, CALF)

pytestmark = pytest.mark.xdist_group("runtimes")


@pytest.fixture(scope="session")
def told(lib, calf) -> dict[str, Any]:
    return expected(lib, calf)


def said(host: Path | str, *words: object, cwd: Path, scratch: Path) -> dict[str, Any]:
    """What a host says."""
    done = command(host, *words, *PLACES, scratch, cwd=cwd)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_node(node_folder, told, tmp_path):
    host = node_folder / "everything.mjs"
    host.write_text((HOSTS / host.name).read_text())
    assert said("node", host, cwd=node_folder, scratch=tmp_path) == told
