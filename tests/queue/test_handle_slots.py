"""The slots of handles, without Python: no kind runs out, and no handle comes again soon."""

from __future__ import annotations

from pathlib import Path

from support.compiler import compile_c, run
from support.paths import CSRC

HERE = Path(__file__).parent


def test_300_million_opens(tmp_path):
    program = compile_c([HERE / "handles.c", CSRC / "base/handles.c"], tmp_path / "handles", "-O2")
    done = run([program])
    assert (done.returncode, done.stderr) == (0, "")
