"""Every binding does everything: what each host prints is what C gives for the same calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from everything import expected
from support.outside import command
from support.paths import CALF, LIBRARY, ROOT

HOSTS = ROOT / "tests/runtimes/hosts"
PLACES = (LIBRARY, CALF)

pytestmark = pytest.mark.xdist_group("runtimes")


@pytest.fixture(scope="session")
def told(lib, calf) -> dict[str, Any]:
    said = expected(lib, calf)
    # Rounded to four digits; mlx's own products need not add up alike in every process.
    near = [[size, pytest.approx(length, abs=2e-4)] for size, length in said["embedded"]]
    return {**said, "embedded": near}


@pytest.fixture(scope="session")
def told_where_types_are_checked(told) -> dict[str, Any]:
    """Where a compiler refuses options that there are not."""
    return {name: value for name, value in told.items() if name != "unknown"}


def test_node(node_folder, told, tmp_path):
    host = node_folder / "everything.mjs"
    host.write_text((HOSTS / host.name).read_text())
    done = command("node", host, *PLACES, tmp_path, cwd=node_folder)
    assert done.stderr == ""
    assert json.loads(done.stdout) == told


def test_java(java_said, told_where_types_are_checked):
    assert json.loads(java_said[0]) == told_where_types_are_checked


def test_go(go_programs, told_where_types_are_checked, tmp_path):
    done = command(go_programs / "everything", *PLACES, tmp_path, cwd=tmp_path)
    assert done.stderr == ""
    assert json.loads(done.stdout) == told_where_types_are_checked
