"""examples/c/generate.c, the demo: its progress is for terminals, and errors stand alone."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from support.compiler import compile_c
from support.hosts import linked
from support.paths import CALF, LIBRARY, ROOT
from support.terminal import Terminal


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    target = tmp_path_factory.mktemp("example") / "generate"
    return compile_c([ROOT / "examples/c/generate.c"], target, *linked(LIBRARY))


@pytest.fixture
def broken(tmp_path):
    """A model that begins to load."""
    folder = shutil.copytree(CALF, tmp_path / "broken")
    (folder / "model.safetensors").write_bytes(b"no weights")
    return folder


def test_a_pipe_gets_the_answer_and_no_progress(program):
    done = subprocess.run([program, CALF, "What is 3 + 4?"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("3 + 4 = 7.\n")


def test_an_error_in_a_pipe_is_one_line(program, broken):
    done = subprocess.run([program, broken, "Hi"], capture_output=True)
    assert done.returncode == 1
    assert done.stderr.startswith(b"EFORMAT: ")
    assert (done.stderr.count(b"\n"), b"\r" in done.stderr) == (1, False)


def test_a_terminal_sees_progress_which_goes_before_the_answer(program):
    terminal = Terminal([program, CALF, "What is 3 + 4?"], dict(os.environ))
    terminal.wait_for("loading weights: +[0-9]+ %")
    terminal.wait_for("= 7")
    assert terminal.end() == 0
    assert terminal.raw.split("3 + 4")[0].endswith("\r\x1b[K")


def test_an_error_on_a_terminal_stands_on_a_line_of_its_own(program, broken):
    terminal = Terminal([program, broken, "Hi"], dict(os.environ))
    terminal.wait_for("loading config")
    terminal.wait_for("EFORMAT: ")
    assert terminal.end() == 1
    assert terminal.raw.split("EFORMAT")[0].endswith("\r\x1b[K")
