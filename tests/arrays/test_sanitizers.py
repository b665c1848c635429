"""The table of arrays, the copies and DLPack under sanitizers and valgrind, without Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.compiler import compile_c, require, run
from support.paths import CSRC
from support.sanitizers import SANITIZERS, build

SCENARIOS = Path(__file__).parent / "table_scenarios.c"
PARTS = (
    "arrays/tensor",
    "arrays/memory",
    "calls/array_calls",
    "base/error",
    "generated/defaults",
    "base/checks",
)
SOURCES = [SCENARIOS, *(CSRC / f"{part}.c" for part in PARTS)]


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_many_threads_and_a_stop(tmp_path, sanitizer):
    program = build(SOURCES, tmp_path / "table", sanitizer, "-I", str(CSRC))
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")


def test_valgrind_finds_nothing(tmp_path):
    valgrind = require("valgrind")
    options = ["-g", "-O1", "-pthread", "-D_DEFAULT_SOURCE", "-I", str(CSRC)]
    program = compile_c(SOURCES, tmp_path / "table", *options)
    quiet = ["-q", "--child-silent-after-fork=yes"]  # a child has the stacks of other threads
    options = [*quiet, "--leak-check=full", "--error-exitcode=9"]
    done = run([valgrind, *options, program], timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
