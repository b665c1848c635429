"""The extension module: whether it fits the mlx that is installed, and what is said if not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import mlx.core as mx
import pytest
from support.kernel_module import SETS
from support.paths import ROOT

from cowmlx.accelerate import kernels

TOLD = "import json; from cowmlx.accelerate import kernels; print(json.dumps(kernels.info()))"


def told(**environment: str) -> dict[str, object]:
    """What another process says of its kernels."""
    command = [sys.executable, "-c", TOLD]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_this_mlx_s_arrays_are_seen():
    """Types are shared only between modules whose nanobind has the same internals."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert (ROOT / f"cowmlx/accelerate/_kernels{suffix}").exists(), "run make"
    from cowmlx.accelerate import _kernels

    version = mx.__version__
    assert version == _kernels.MLX_VERSION, (
        f"the kernels were built for mlx {_kernels.MLX_VERSION}, and {version} is installed: "
        "change build-system.requires in pyproject.toml as the dependencies, and run make"
    )
    assert _kernels.takes(mx.array([1.0])), (
        f"mlx {version} was made with another nanobind than the kernels: they do not see mx.array. "
        "Find the version whose internals mlx's wheel has, and pin it in build.txt"
    )
    assert not _kernels.takes(1.0)
    assert told(COWMLX_KERNELS="")["problem"] is None


def test_build_and_runtime_ask_for_the_same_mlx():
    import tomllib

    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    build = {pin.replace("'", '"') for pin in about["build-system"]["requires"]}
    wanted = {pin.replace("'", '"') for pin in about["project"]["dependencies"]}
    tools = set((ROOT / "tools/requirements/build.txt").read_text().splitlines())
    mlx = {pin for pin in wanted if pin.startswith(("mlx=", "mlx-cpu="))}
    assert len(mlx) == 2
    assert mlx <= build
    assert {pin for pin in build if pin.startswith("nanobind")} <= tools


@pytest.mark.parametrize("name", SETS)
def test_an_instruction_set_can_be_chosen(name):
    assert told(COWMLX_KERNELS=name)["instruction_set"] == name


@pytest.mark.skipif(not SETS, reason="there are no kernels in this process")
def test_the_best_instruction_set_is_the_default():
    """That of bfloat16 is not the best on Intel's processors."""
    processors = Path("/proc/cpuinfo")
    is_amd = processors.exists() and "AuthenticAMD" in processors.read_text()
    best = next(name for name in SETS if is_amd or name not in kernels.BFLOAT16)
    assert told(COWMLX_KERNELS="") == {**kernels.info(), "instruction_set": best}


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ("off", "COWMLX_KERNELS is off"),
        ("sse9", 'COWMLX_KERNELS is "sse9"; it can be portable, avx2, avxvnni, avx512, '),
    ],
)
def test_why_there_are_none(chosen, why):
    info = told(COWMLX_KERNELS=chosen)
    assert (info["instruction_set"], info["threads"]) == (None, None)
    assert str(info["problem"]).startswith(why)


@pytest.mark.skipif(not SETS, reason="there are no kernels in this process")
def test_another_processor_s_instruction_set_is_refused():
    other = next(name for name in ("neon", "avx2") if name not in SETS)
    problem = str(told(COWMLX_KERNELS=other)["problem"])
    assert problem.startswith(f'COWMLX_KERNELS is "{other}", but this processor cannot run')
    assert problem.endswith(f"it can run {', '.join(SETS)}")


def test_another_mlx_is_told():
    code = f"import mlx.core as mx; mx.__version__ = '0.0.1'; {TOLD}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COWMLX_KERNELS": ""},
    )
    assert "they were made for mlx" in json.loads(done.stdout)["problem"]
