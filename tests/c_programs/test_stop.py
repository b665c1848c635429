"""A stop, and the end of the process, while programs run."""

from __future__ import annotations

import os
import sys

from support.compiler import run
from support.paths import ROOT


def test_a_stop_and_an_exit_end_runs():
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)])}
    done = run([sys.executable, ROOT / "tests/c_programs/hosts/stopping.py"], env=env)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "stopped\n")
