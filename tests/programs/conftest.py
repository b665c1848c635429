"""Programs on the CPU, whose results are the same bits as plain mlx's there."""

from __future__ import annotations

import mlx.core as mx
import pytest


@pytest.fixture(autouse=True)
def on_the_cpu():
    mx.disable_compile()
    with mx.stream(mx.cpu):
        yield
    mx.enable_compile()
