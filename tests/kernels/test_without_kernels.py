"""Without kernels, numbers are plain mlx-lm's within narrow bounds of its operations."""

from __future__ import annotations

import re
import sys

import pytest
from support.compiler import run
from support.kernel_module import SETS
from support.paths import ROOT
from support.without_kernels import environment

pytestmark = pytest.mark.long

MARK = "@pytest.mark." + "plain"  # put together, so that this file is not one of them
FILES = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if MARK in path.read_text()]


@pytest.mark.skipif(not SETS, reason="this process has no kernels: these tests run there")
def test_numbers_are_those_of_plain_mlx_lm():
    """Kernels are bound for the whole process, so another one runs what compares with mlx-lm."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "plain", "-p", "no:cacheprovider"]
    done = run([*command, *FILES], cwd=ROOT, env=environment())
    assert done.returncode == 0, done.stdout
    (passed,) = map(int, re.findall(r"(\d+) passed", done.stdout))
    assert passed > 150
    assert "skipped" not in done.stdout
