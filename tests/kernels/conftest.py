"""What tests of single kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.kernel_module import SETS

from cowmlx.accelerate import kernels


@pytest.fixture(params=SETS)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each that this processor knows; the best one again afterwards."""
    module = kernels.module()
    module.select(request.param)
    yield request.param
    module.select("")
