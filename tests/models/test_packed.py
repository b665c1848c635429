"""The types that quantized networks compute in on a CPU."""

from __future__ import annotations

import json
import pathlib

import mlx.core as mx
import pytest
from mlx.nn.layers.base import Module
from mlx.nn.layers.quantized import QuantizedLinear
from support import tiny_models
from support.loaded import load

from cowmlx.accelerate import kernels
from cowmlx.accelerate.linear import BlockQuantizedLinear
from cowmlx.modules import modules_of


def is_ours(module: Module) -> bool:
    return type(module).__module__.startswith("cowmlx.accelerate")


@pytest.mark.parametrize("with_kernels", [False, True], ids=["mlx", "kernels"])
def test_a_packed_model_computes_in_float32_and_nothing_else_changes(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, with_kernels: bool
):
    if not with_kernels:
        monkeypatch.setattr(kernels, "available", lambda: False)
    elif not kernels.available():
        pytest.skip("there are no kernels here")
    settings = {"group_size": 32, "bits": 4}
    path = tiny_models.make(folder / f"packed-{with_kernels}", "llama", quantize=settings)
    stored = mx.load(str(path / "model.safetensors"))
    halved = {
        name: array.astype(mx.bfloat16) if array.dtype == mx.float32 else array
        for name, array in stored.items()
    }
    mx.save_safetensors(str(path / "model.safetensors"), halved, {"format": "mlx"})
    model = load(path)
    layer = model.network.model.layers[0].self_attn.q_proj
    assert type(layer) is (BlockQuantizedLinear if with_kernels else QuantizedLinear)
    own = [module for module in modules_of(model.network) if is_ours(module)]
    assert bool(own) == with_kernels
    assert model.form.is_slow != with_kernels
    assert layer.weight.dtype == mx.uint32
    assert layer.scales.dtype == mx.float32
    assert model.network(mx.array([[1, 2]]), cache=model.make_cache()).dtype == mx.float32
    assert model.info()["quantization"] == json.loads(json.dumps(settings))


def test_a_model_of_16_bits_that_is_not_packed_stays_so(folder: pathlib.Path):
    path = tiny_models.make(folder / "halves", "llama")
    stored = mx.load(str(path / "model.safetensors"))
    halved = {name: array.astype(mx.bfloat16) for name, array in stored.items()}
    mx.save_safetensors(str(path / "model.safetensors"), halved, {"format": "mlx"})
    assert load(path).network.model.layers[0].self_attn.q_proj.weight.dtype == mx.bfloat16
