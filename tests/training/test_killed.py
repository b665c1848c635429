"""A run that is killed at random places, fifty times, ends with the bits of one that was not."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import pytest
from support.compiler import compile_c, run
from support.hosts import linked
from support.paths import LIBRARY
from support.trainings import network

KILLS = 50
# Microseconds, of about a boot, and of some steps and saves.
BOOT, STEPS = 300_000, 8_000
NO_END, NEVER = 1 << 40, -1
OPTIMIZER = {
    "name": "adam",
    "bias_correction": True,
    "learning_rate": {
        "name": "warmup",
        "steps": 4,
        "then": {"name": "cosine_decay", "init": 0.05, "decay_steps": 300},
    },
}


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """Runs the program in a folder; returns its status and the steps that it printed."""
    source = Path(__file__).parent / "hosts/killed.c"
    place = tmp_path_factory.mktemp("killed") / "killed"
    program = compile_c([source], place, *linked(LIBRARY))

    def host(folder: Path, steps: int, when: int, delay: int) -> tuple[int, list[int]]:
        words = [json.dumps(network()), json.dumps(OPTIMIZER), str(steps), str(when), str(delay)]
        done = run([program, folder, *words], timeout=60)
        assert done.stderr == ""
        whole = done.stdout[: done.stdout.rfind("\n") + 1]  # a kill may cut the last line
        return done.returncode, [int(line.split()[-1]) for line in whole.splitlines()]

    return host


@pytest.mark.long
def test_fifty_kills_change_no_bit(host, tmp_path):
    """In the boot, in loads, steps and saves: a reported save stays."""
    draws = random.Random(11)
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    killed.mkdir()
    saved = 0
    for kill in range(KILLS):
        # Most come in the first steps of a process, every tenth before them.
        when = 0 if kill % 10 == 5 else draws.randint(1, 4)
        code, steps = host(killed, NO_END, when, draws.randrange(1, STEPS if when else BOOT))
        assert code == -signal.SIGKILL
        assert len(steps) >= when
        if steps:
            assert steps == list(range(steps[0], steps[-1] + 1))
            assert saved <= steps[0] <= saved + 1  # a save may be whole before it is reported
            saved = steps[-1]
    code, (began,) = host(killed, saved + 5, NEVER, 0)
    assert code == 0 and saved <= began <= saved + 1
    assert host(whole, saved + 5, NEVER, 0) == (0, [0])
    # What killed writers left is swept by the next one.
    assert os.listdir(killed) == os.listdir(whole) == ["training.safetensors"]
    assert (killed / "training.safetensors").read_bytes() == (
        whole / "training.safetensors"
    ).read_bytes()
