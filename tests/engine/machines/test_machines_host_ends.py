"""Ranks end with their host, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from time import monotonic

import pytest
from support.lag import Lag
from support.paths import ROOT
from support.workers import ranks_of

HOST = ROOT / "tests/engine/hosts/split_host.py"
SECONDS = 2


def is_there(pid):
    """Whether a process runs; one that nobody has waited for does not."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return state.stdout.strip()[:1] not in ("", "Z")


def gone(pids):
    """Wait until none of these processes is there."""
    began = monotonic()
    with Lag() as lag:
        while any(map(is_there, pids)):
            assert monotonic() - began < SECONDS + lag.seconds, "a rank outlives its host"
    return True


# Of those that stay in a stage of a load, or have forked a child that goes on, too.
RANKS = {"killed": 2, "stop": 0, "fork": 2, "connect": 1, "shard": 2}


@pytest.mark.parametrize("how", RANKS)
def test_ranks_end_with_their_host(place, worker, secret, how):
    host = subprocess.Popen(
        [sys.executable, str(HOST), how, place / "models/pipeline", worker.address, secret],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with host:
        assert host.stdout is not None
        assert host.stdout.readline() == "generates\n"
        ranks = [*worker.ranks(), *ranks_of(host.pid)]
        if how == "stop":
            assert host.stdout.readline() == "stopped\n"
        else:
            assert len(ranks) == RANKS[how]
            host.send_signal(signal.SIGKILL)
        assert gone(ranks)
        host.communicate("", timeout=60)
    assert host.returncode == (0 if how == "stop" else -signal.SIGKILL)
    assert worker.ranks() == []


# A host that has closed its standard streams, so that what it opens next takes their places.
BARE = """
import os, sys
os.closerange(0, 3)
from cowmlx.machines.child import Child
child = Child({"rank": 0, "size": 1, "threads": 0})
child.connection.send({"ping": 1})
while not (told := child.connection.receive()):
    pass
child.end()
sys.exit(0 if told[0][0]["pong"] == 1 else 1)
"""


def test_a_host_without_standard_streams_has_a_rank():
    assert subprocess.run([sys.executable, "-c", BARE], check=False, timeout=60).returncode == 0
