"""Ranks end with their host, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from time import monotonic

import pytest
from support.paths import ROOT
from support.workers import ranks_of

HOST = ROOT / "tests/engine/hosts/split_host.py"
SECONDS = 10  # on a machine that does much else; the guide has what was measured


def is_there(pid):
    """Whether a process runs; one that nobody has waited for does not."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return state.stdout.strip()[:1] not in ("", "Z")


def gone(pids):
    """Wait until none of these processes is there."""
    until = monotonic() + SECONDS
    while any(map(is_there, pids)):
        assert monotonic() < until, "a rank outlives its host"
    return True


@pytest.mark.parametrize("how", ["killed", "stop"])
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
        if how == "killed":
            assert len(ranks) == 2
            host.send_signal(signal.SIGKILL)
        elif how == "stop":
            assert host.stdout.readline() == "stopped\n"
        assert gone(ranks)
        host.communicate("", timeout=60)
    assert host.returncode == (-signal.SIGKILL if how == "killed" else 0)
    assert worker.ranks() == []
