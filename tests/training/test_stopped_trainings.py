"""A stop, and the end of the process, while a training runs."""

from __future__ import annotations

import sys
from pathlib import Path

from support.compiler import run


def test_a_stop_and_an_exit_end_a_fit():
    done = run([sys.executable, Path(__file__).parent / "hosts/stopping.py"])
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "stopped\n")
