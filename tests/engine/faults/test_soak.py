"""Half a minute of everything at once; ``python -m benchmarks.endurance`` does it for longer."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from driver import QUANTIZED_SLIDING
from support import heads, tiny_models
from support.compiler import run
from support.paths import ROOT

pytestmark = pytest.mark.long

HOST = Path(__file__).parents[1] / "hosts/soak.py"
SECONDS, SEED = 30, 1
KINDS = {
    *("stream", "generate", "chat", "cancel", "free"),
    *("fork", "trim", "checkpoint", "save_and_load", "tokenize"),
    *("keep_in_memory", "sleep", "think", "score", "rows", "call_tools"),
}


def test_half_a_minute_of_everything(folder, tmp_path):
    drafting = heads.add(tiny_models.make(tmp_path / "mimo", "mimo"), "mimo")
    models = [folder("calf"), folder("falcon_h1"), folder(QUANTIZED_SLIDING), drafting]
    command = [sys.executable, HOST, SECONDS, SEED, tmp_path, *models]
    done = run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "tests")})
    assert (done.returncode, done.stderr) == (0, "")
    counts = json.loads(done.stdout)
    assert counts.keys() == KINDS
    assert min(counts.values()) > 0
