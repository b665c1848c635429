"""Ranks end with their host, however that ends."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import sysconfig
from time import monotonic

import pytest
from support.lag import SLACK, Lag
from support.paths import ROOT
from support.workers import ranks_of

HOST = ROOT / "tests/engine/hosts/split_host.py"
SECONDS = 1 + SLACK


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


# Of those that stay in a stage of a load, or have forked a child that continues, too.
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


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A Python without mlx, in a separate environment."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin/python"


# Begins with its own path, as a host does that brings its packages.
OWN_PATH = """
import runpy, sys
sys.path[:0] = sys.argv[1].split(":")
sys.argv[:] = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_rank_of_a_host_with_a_path_of_its_own_finds_what_the_host_finds(
    bare, place, worker, secret
):
    packages = sysconfig.get_path("purelib")
    paths = f"{ROOT / 'tests'}:{ROOT}:{packages}"
    arguments = ["stop", place / "models/pipeline", worker.address, secret]
    host = subprocess.run(
        [bare, "-I", "-c", OWN_PATH, paths, HOST, *arguments],
        input="",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (host.returncode, host.stdout) == (0, "generates\nstopped\n"), host.stderr


LACKING = """
import sys
sys.path.insert(0, sys.argv[1])
from cowmlx.machines.child import Child
child = Child({"rank": 0, "size": 1, "threads": 0})
while not (told := child.connection.receive()):
    pass
child.end()
print(told[0][0]["failed"])
"""


def test_a_rank_without_mlx_says_what_it_lacks(bare):
    done = subprocess.run(
        [bare, "-I", "-c", LACKING, ROOT], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    failed = ast.literal_eval(done.stdout)
    assert (failed["kind"], failed["reason"]) == ("NotFound", "package_not_found")
    assert f"the Python in {bare.parent.parent} has no package 'mlx" in failed["message"]
