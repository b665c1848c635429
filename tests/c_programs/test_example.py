"""The example of a program finds the weights that its points were made with."""

from __future__ import annotations

from support.compiler import compile_c, run
from support.hosts import linked
from support.paths import LIBRARY, ROOT


def test_regression(tmp_path):
    source = ROOT / "examples/c/regression.c"
    program = compile_c([source], tmp_path / "regression", *linked(LIBRARY))
    done = run([program])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "y = 3.000 a -2.000 b after 500 rounds\n"
