"""Products with packed weights on a CPU are those of mlx."""

from __future__ import annotations

import json
import pathlib

import mlx.core as mx
import pytest
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedLinear
from support import tiny_models
from support.loaded import load

from cowmlx import blas
from cowmlx.accelerate import kernels, packed, parted
from cowmlx.accelerate.linear import BlockQuantizedLinear

KINDS = [
    *(("affine", bits, 64) for bits in (2, 3, 4, 5, 6, 8)),
    ("mxfp4", 4, 32),
    ("mxfp8", 8, 32),
    ("nvfp4", 4, 16),
]
ROWS, COLUMNS = 50, 128


def pair(mode: str, bits: int, group_size: int, *, bias: bool) -> tuple[Linear, Linear]:
    """The same layer, mlx's and ours."""
    layers = []
    for kind in (QuantizedLinear, packed.PackedLinear):
        dense = Linear(COLUMNS, ROWS, bias=bias)
        dense.weight = mx.random.normal((ROWS, COLUMNS), key=mx.random.key(1))
        if bias:
            dense.bias = mx.random.normal((ROWS,), key=mx.random.key(2))
        layers.append(kind.from_linear(dense, group_size, bits, mode))
    return layers[0], layers[1]


def vectors(*shape: int) -> mx.array:
    return mx.random.normal((*shape, COLUMNS), key=mx.random.key(3))


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
def test_few_vectors_give_the_same_to_the_last_bit(kind, bias):
    plain, ours = pair(*kind, bias=bias)
    for shape in ((), (1,), (3,), (1, 2)):
        assert mx.array_equal(ours(vectors(*shape)), plain(vectors(*shape)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
def test_parts_on_several_streams_give_the_same_to_the_last_bit(kind, monkeypatch):
    monkeypatch.setattr(parted, "_WORTH_A_STREAM", 1)
    monkeypatch.setattr(blas, "processors", lambda: 3)
    plain, ours = pair(*kind, bias=True)
    for shape in ((1,), (3, 1)):
        assert mx.array_equal(ours(vectors(*shape)), plain(vectors(*shape)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
def test_many_vectors_give_the_same_but_for_rounding(kind):
    plain, ours = pair(*kind, bias=True)
    for shape in ((40,), (2, 33)):
        found, expected = ours(vectors(*shape)), plain(vectors(*shape))
        assert found.dtype == expected.dtype == mx.float32
        assert mx.allclose(found, expected, rtol=1e-4, atol=1e-4)


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
    assert type(layer) is (BlockQuantizedLinear if with_kernels else packed.PackedLinear)
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
