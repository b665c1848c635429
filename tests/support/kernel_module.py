"""The kernels' module, for tests that are about it alone."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from cowmlx.accelerate import kernels
from support.paths import ROOT

# Instruction sets that may run here, best first; none without kernels.
SETS: list[str] = kernels.module().instruction_sets() if kernels.available() else []


def needed() -> ModuleType:
    """Return the module. Where a test file asks for it, and there is none, the file is skipped."""
    if not kernels.available():
        pytest.skip(f"there are no kernels: {kernels.reason()}", allow_module_level=True)
    return kernels.module()


def build_object(name: str) -> Path:
    """The object file that the build made of an instruction set."""
    made = ROOT.glob(f"build/temp.*/kernels/kernels-isa_{name}.o")
    return max(made, key=lambda path: path.stat().st_mtime_ns)
