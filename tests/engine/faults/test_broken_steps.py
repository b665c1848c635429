"""Exceptions in steps of the engine: every call ends and says where, and the runtime still runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from driver import KV
from support.compiler import run

HOST = Path(__file__).parents[1] / "hosts/broken_steps.py"
PLACE = "RuntimeError: broken ("
KINDS = ("model", "context", "adapter", "checkpoint", "media", "program", "training", "array")
NO_HANDLES = dict.fromkeys(KINDS, 0)


@pytest.fixture
def broken(folder):
    """Runs the host with a fault."""

    def broken(fault):
        done = run([sys.executable, HOST, folder(KV), fault], timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
        found = json.loads(done.stdout)
        assert found["before"] == found["after"] == found["started again"]
        return found

    return broken


@pytest.mark.parametrize("fault", ["step", "turn", "step and what frees"])
def test_one_that_is_no_single_call_s_ends_all_and_frees_all(broken, fault):
    found = broken(fault)
    assert len(found["ended"]) == 4
    for name, (status, message) in found["ended"].items():
        assert status == "EINTERNAL", (name, message)
        assert PLACE in message and f"{HOST}:" in message
    (warning,) = found["warnings"]
    assert PLACE in warning and f"{HOST}:" in warning
    if fault != "step and what frees":
        assert found["handles"] == NO_HANDLES
        assert found["context"] == "EHANDLE"


@pytest.mark.parametrize("fault", ["lane", "event"])
def test_one_that_is_a_call_s_ends_that_call_alone(broken, fault):
    found = broken(fault)
    failed = [message for status, message in found["ended"].values() if status == "EINTERNAL"]
    assert len(failed) == 1
    assert PLACE in failed[0] and f"{HOST}:" in failed[0]
    assert sorted(status for status, _ in found["ended"].values()) == ["EINTERNAL", *["OK"] * 3]
    assert found["warnings"] == []
    assert found["context"] == "OK"
