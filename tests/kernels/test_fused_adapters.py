"""Fused layers with LoRA and DoRA adapters against the layers' own code."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import mlx.core as mx
import pytest
from support import tiny_models
from support.loaded import load

from cowmlx.accelerate import kernels
from cowmlx.accelerate.fused import network as fused
from cowmlx.folders import weights
from cowmlx.generated.constants import ACTIVATIONS_INT8
from cowmlx.models import adapters

pytestmark = [
    pytest.mark.skipif(not kernels.available(), reason="there are no kernels here"),
    pytest.mark.usefixtures("on_cpu"),
]

PROMPT = [3, 5, 7, 2, 9, 11, 4, 8, 1, 6, 12, 13]
FOUR_BITS = {"group_size": 32, "bits": 4}
RANK = 4
NEAR = 5e-5


def made(
    place: pathlib.Path, family: str, quantize: Any, kind: str = "lora"
) -> tuple[pathlib.Path, pathlib.Path]:
    """A model, and an adapter of random weights for all of its linear layers but the last's."""
    path = tiny_models.make(place / "model", family, quantize=quantize)
    folder = place / "adapter"
    folder.mkdir()
    lora = {"rank": RANK, "scale": 2.0, "dropout": 0.0}
    settings = {"fine_tune_type": kind, "num_layers": 2, "lora_parameters": lora}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    model = load(path)
    adapters.insert_layers(model.network, settings, model.package)
    parts = weights.flatten(model.network.parameters()).items()
    own = {name: each for name, each in parts if name.rsplit(".", 1)[-1] in ("lora_a", "lora_b")}
    random = {
        name: 0.3 * mx.random.normal(each.shape, key=mx.random.key(number))
        for number, (name, each) in enumerate(own.items())
    }
    lengths = {name: each for name, each in parts if name.endswith(".m")}
    for number, (name, each) in enumerate(lengths.items()):  # others than the weights' own
        random[name] = each * mx.random.uniform(0.5, 2, each.shape, key=mx.random.key(100 + number))
    mx.save_safetensors(str(folder / "adapters.safetensors"), random)
    return path, folder


def logits(model: Any, caches: list[Any], tokens: list[int]) -> mx.array:
    made: mx.array = model.network(mx.array([tokens]), cache=caches)[0]
    mx.eval(made, [cache.state for cache in caches])
    return made


@pytest.mark.parametrize("quantize", [None, FOUR_BITS], ids=["float32", "4 bits"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "phi3"])
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_they_compute_what_the_layers_do(tmp_path, kind, family, quantize):
    path, adapter = made(tmp_path, family, quantize, kind)
    model, plain = (load(path, adapter=adapter) for _ in range(2))
    assert model.info()["kernels"]["whole"]
    assert model.info()["kernels"]["why_not"] == []
    fused.undo(plain.network)
    bare = load(path)
    caches, others = model.make_cache(), plain.make_cache()
    for tokens in (PROMPT, [5], [9], [(7 * i) % 50 for i in range(90)], [3]):
        own, expected = logits(model, caches, tokens), logits(plain, others, tokens)
        assert (mx.abs(own - expected).max() / mx.abs(expected).max()).item() < NEAR
    without = logits(bare, bare.make_cache(), PROMPT)
    with_adapter = logits(model, model.make_cache(), PROMPT)
    assert (mx.abs(with_adapter - without).max() / mx.abs(without).max()).item() > 0.05


@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_rounded_activations(tmp_path, kind):
    path, adapter = made(tmp_path, "llama", FOUR_BITS, kind)
    model, plain = (load(path, adapter=adapter, activations=ACTIVATIONS_INT8) for _ in range(2))
    fused.undo(plain.network)
    own, expected = (logits(each, each.make_cache(), PROMPT) for each in (model, plain))
    # Rounded activations may fall to either side where sums of float32 differ.
    assert (mx.abs(own - expected).max() / mx.abs(expected).max()).item() < 5e-2


def test_parts_that_do_not_fit_are_refused():
    module = kernels.module()

    def matrix(rows: int, columns: int, dtype: mx.Dtype = mx.float32) -> Any:
        return module.Matrix(module.pack(mx.zeros((rows, columns), dtype)), rows=rows)

    base = matrix(32, 64)
    assert base.with_low(matrix(4, 64), matrix(32, 4)).part(16, 16).rows == 16
    for down, up in (
        (matrix(4, 32), matrix(32, 4)),
        (matrix(4, 64), matrix(16, 4)),
        (matrix(4, 64), matrix(32, 8)),
        (matrix(4, 64, mx.bfloat16), matrix(32, 4)),
    ):
        with pytest.raises(ValueError, match="low-rank part is float32"):
            base.with_low(down, up)
    for rescale in (mx.zeros(31), mx.zeros((32, 1)), mx.zeros(32, mx.float16)):
        with pytest.raises(ValueError, match="32 float32"):
            base.with_low(matrix(4, 64), matrix(32, 4), rescale)
