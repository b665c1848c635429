"""The training example classifies almost all points right, and continues after a stop."""

from __future__ import annotations

import re
import signal
import subprocess

import pytest
from support.compiler import compile_c, run
from support.hosts import linked
from support.paths import LIBRARY, ROOT


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    source = ROOT / "examples/c/train.c"
    return compile_c([source], tmp_path_factory.mktemp("train") / "train", *linked(LIBRARY))


def accuracies(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"unseen points, ([\d.]+) %", text)]


def steps(text: str) -> dict[int, str]:
    return {int(at): loss for at, loss in re.findall(r"step +(\d+) of 600  loss ([\d.]+)", text)}


def test_it_learns(program):
    done = run([program])
    assert (done.returncode, done.stderr) == (0, "")
    found = accuracies(done.stdout)
    assert len(found) == 3 and found[-1] > 95 > found[0] - 5
    assert list(steps(done.stdout)) == list(range(50, 601, 50))


def test_it_goes_on_after_an_interruption(program, tmp_path):
    whole = run([program, tmp_path / "whole"])
    host = subprocess.Popen([program, tmp_path / "run"], stdout=subprocess.PIPE, text=True)
    first = ""
    for line in host.stdout:
        first += line
        if "step 100" in line:
            host.send_signal(signal.SIGINT)
    assert host.wait(timeout=60) == 0
    host.stdout.close()
    rest = run([program, tmp_path / "run"]).stdout
    if "interrupted" in first:
        assert "it goes on" in rest
    together = {**steps(first), **steps(rest)}
    # An event that has only a part of its 50 steps in this process tells another mean.
    same = [at for at, loss in steps(whole.stdout).items() if together[at] == loss]
    assert len(same) >= 11 and 600 in same
    assert accuracies(rest)[-1:] in ([], accuracies(whole.stdout)[-1:])


def test_a_file_that_cannot_be_read_is_kept(program, tmp_path):
    (tmp_path / "training.safetensors").write_bytes(b"damaged")
    done = run([program, tmp_path])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("EFORMAT: ")
    assert (tmp_path / "training.safetensors").read_bytes() == b"damaged"
