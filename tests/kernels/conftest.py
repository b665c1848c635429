"""What tests of single kernels share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import pytest
from support import tiny_models
from support.kernel_module import SETS
from support.loaded import load

from cowmlx.accelerate import kernels
from cowmlx.accelerate.fused import network as fused
from cowmlx.models.model import Model


@pytest.fixture(params=SETS)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each that this processor knows; the best one again afterwards."""
    module = kernels.module()
    module.select(request.param)
    yield request.param
    module.select("")


@pytest.fixture(scope="module")
def on_cpu() -> Iterator[None]:
    """Computes on the CPU, without a compiler."""
    device = mx.default_device()
    mx.set_default_device(mx.cpu)
    mx.disable_compile()
    yield
    mx.enable_compile()
    mx.set_default_device(device)


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, on_cpu: None
) -> Callable[..., tuple[Model, Model]]:
    """A model with fused layers, and the same with its own layers."""
    made: dict[str, tuple[Model, Model]] = {}

    def get(
        family: str,
        quantize: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
    ) -> tuple[Model, Model]:
        key = f"{family} {quantize} {config}"
        if key not in made:
            place = tmp_path_factory.mktemp("models") / str(len(made))
            path = tiny_models.make(place, family, config=config, quantize=quantize)
            with_kernels, plain = load(path), load(path)
            fused.undo(plain.network)
            made[key] = with_kernels, plain
        return made[key]

    return get
