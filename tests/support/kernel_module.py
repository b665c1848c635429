"""The kernels' module, for tests that are about it alone."""

from __future__ import annotations

from types import ModuleType

import pytest

from cowmlx.accelerate import kernels

# Instruction sets that may run here, best first; none without kernels.
SETS: list[str] = kernels.module().instruction_sets() if kernels.available() else []


def needed() -> ModuleType:
    """Return the module. Where a test file asks for it, and there is none, the file is skipped."""
    if not kernels.available():
        pytest.skip(f"there are no kernels: {kernels.reason()}", allow_module_level=True)
    return kernels.module()
