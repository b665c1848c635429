"""Draws of single rows, without Python, under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.compiler import run
from support.paths import CSRC
from support.sanitizers import SANITIZERS, build

HERE = Path(__file__).parent
SOURCES = [HERE / "sample_scenarios.cpp"]
SOURCES += [CSRC / f"kernels/primitives/sample_{part}.cpp" for part in ("row", "noise")]


@pytest.mark.long
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_every_token_is_one_that_is_left(sanitizer, tmp_path):
    options = [f"-I{CSRC / 'kernels'}", "-Wno-psabi"]
    program = build(SOURCES, tmp_path / "samples", sanitizer, *options, compiler="c++", std="c++20")
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")
