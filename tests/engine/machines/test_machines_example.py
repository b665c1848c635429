"""The example in C: a model on several machines answers, also after one of them was lost."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from support.compiler import compile_c
from support.hosts import linked
from support.paths import CALF, LIBRARY, ROOT

SOURCE = ROOT / "examples/c/machines.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The example, compiled."""
    return compile_c([SOURCE], tmp_path_factory.mktemp("example") / "machines", *linked(LIBRARY))


@pytest.fixture(scope="module")
def calf_worker(start_worker):
    """A worker that has calf."""
    return start_worker(models=CALF.parent)


def test_it_answers(program, calf_worker, secret):
    done = subprocess.run(
        [program, secret, CALF, calf_worker.address], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3 + 4 = 7.\n"
    assert "shard 100 %" in done.stderr


def test_it_loads_again_where_a_machine_was_lost(program, calf_worker, secret):
    host = subprocess.Popen(
        [program, secret, CALF, calf_worker.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert host.stderr is not None
    for line in host.stderr:
        if line.startswith("done"):
            for rank in calf_worker.ranks():
                os.kill(rank, signal.SIGKILL)
            break
    said, _ = host.communicate(timeout=120)
    assert host.returncode == 0
    assert said == "3 + 4 = 7.\n"
