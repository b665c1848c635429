"""Everything at once while memory and threads are refused at random.

``python -m benchmarks.endurance SECONDS --refusals`` does the same for longer.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from support import groups
from support.compiler import compile_c, run
from support.paths import ROOT

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux"),
]

HERE = Path(__file__).parent
HOSTS = HERE.parent / "hosts"
SECONDS = float(os.environ.get("COWMLX_ENDURANCE_SECONDS", "100"))
SEED = int(os.environ.get("COWMLX_ENDURANCE_SEED", "1"))


def test_two_minutes_of_refusals(folder, tmp_path):
    refusing = compile_c([HERE / "refusing.c"], tmp_path / "refusing.so", "-shared", "-fPIC")
    models = [folder("calf"), folder("falcon_h1")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "LD_PRELOAD": str(refusing)}
    with groups.made() as group:  # without one, the memory is not bounded
        command = [sys.executable, HOSTS / "endurance.py", SECONDS, SEED, refusing]
        command += ["" if group is None else group, tmp_path, *models]
        done = run(command, env=environment, timeout=SECONDS + 200)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-8000:]
    report = json.loads(done.stdout)
    assert min(report["done"].values()) > 0
    assert report["refusals"] > 0
    assert sum(report["refused"].values()) > 0
