"""Real networks of packages, as ONNX files: equal to ONNX Runtime within 1e-4."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import registries
from support.onnx_models import program_of, run

RUNTIME = """
import sys, numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
results = session.run(None, dict(np.load(sys.argv[2])))
np.savez(sys.argv[3], **{f"r{at:03}": result for at, result in enumerate(results)})
"""


def expected(network: Path, folder: Path, **inputs: np.ndarray) -> list[np.ndarray]:
    """What ONNX Runtime computes, in a separate process."""
    packages = registries.installed("onnxruntime", "1.32.0")
    given, results = folder / "given.npz", folder / "results.npz"
    np.savez(given, **inputs)
    command = [sys.executable, "-c", RUNTIME, network, given, results]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    loaded = np.load(results)
    return [loaded[name] for name in sorted(loaded.files)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "fixed"),
    [
        ("silero_vad_op18_ifless.onnx", {}),
        ("silero_vad.onnx", {"sr": 16000, "input_0": 2, "input_1": 512}),
    ],
)
@pytest.mark.parametrize("rows", [1, 2])
def test_silero_finds_voices_as_onnx_runtime(tmp_path: Path, name: str, fixed: dict, rows: int):
    files = registries.wheel("silero-vad", "6.2.3", "silero_vad/data/*.onnx")
    (network,) = (path for path in files if path.name == name)
    rng = np.random.default_rng(0)
    inputs = {
        "input": (rng.standard_normal((rows, 512)) / 3).astype(np.float32),
        "state": (rng.standard_normal((2, rows, 128)) / 3).astype(np.float32),
        "sr": np.array(16000),
    }
    if "input_0" in fixed:
        fixed = {**fixed, "input_0": rows, "state_1": rows}
    made = onnx.load(network)
    found = run(program_of(made, **fixed), **inputs)
    for result, wanted in zip(found, expected(network, tmp_path, **inputs), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
