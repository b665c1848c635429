"""Links between machines that go down: between a host and a worker, and between two workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support import islands
from support.lag import SLACK
from support.paths import ROOT
from support.signatures import ELOST

HOST = ROOT / "tests/engine/hosts/island_host.py"
SILENCE = 1.0  # seconds, as the host has it


@pytest.fixture(scope="module")
def told(place, secret):
    """What calls of a host on three islands have ended with."""
    if not sys.platform.startswith("linux"):
        pytest.skip("network namespaces are Linux's")
    enter, problem = islands.within()
    if problem:
        pytest.skip(f"no network namespaces: {problem}")
    done = subprocess.run(
        [*enter, sys.executable, HOST, place / "models/pipeline", secret],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def lost(one, more=0.0):
    """Fail unless a call was lost, in time."""
    assert one["status"] == ELOST, one
    assert one["seconds"] < SILENCE + SLACK + more + one["lag"], one
    return one["message"]


@pytest.mark.long
def test_workers_that_reach_each_other_no_more_are_both_named(told):
    message = lost(told["between"])
    assert "10.77.0.2" in message
    assert "10.77.0.3" in message
    assert "has not reached it for 1 seconds" in message


def test_workers_that_never_reach_each_other_are_named_while_they_load(told):
    message = lost(told["joining"], told["load"])
    assert told["joining"]["reason"] == "unreachable"
    assert "10.77.0.2" in message
    assert "10.77.0.3" in message


def test_a_worker_whose_link_is_down_is_lost(told):
    assert "nothing was heard of it for 1 seconds" in lost(told["down"])


@pytest.mark.long
def test_a_link_that_is_down_while_nothing_is_computed_does_no_harm(told):
    assert told["mended"] == told["tokens"]


def test_the_first_rank_listens_where_the_last_one_sees_it(told):
    assert told["parted"] == {"status": 0}
    assert told["apart"] == told["tokens"]


def test_a_new_load_works_once_links_are_up(told):
    assert told["again"] == told["tokens"]
