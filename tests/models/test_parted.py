"""Linear layers that share their rows out between processors are mlx's."""

from __future__ import annotations

import pathlib

import mlx.core as mx
import pytest
from mlx.nn.layers.linear import Linear
from support import tiny_models
from support.loaded import load

from cowmlx import blas
from cowmlx.accelerate import kernels, parted

ROWS, COLUMNS = 50, 128


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (7,), (2, 33)], ids=str)
def test_parts_on_several_streams_give_the_product(shape, bias, monkeypatch):
    layer = Linear(COLUMNS, ROWS, bias=bias)
    layer.weight = mx.random.normal((ROWS, COLUMNS), key=mx.random.key(1))
    x = mx.random.normal((*shape, COLUMNS), key=mx.random.key(3))
    expected = layer(x)
    layer.__class__ = parted.PartedLinear
    assert mx.array_equal(layer(x), expected)
    monkeypatch.setattr(parted, "_WORTH_A_STREAM", 1)
    monkeypatch.setattr(blas, "processors", lambda: 3)
    found = layer(x)
    assert found.shape == expected.shape
    assert mx.allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("threads", "kind"), [(1, parted.PartedLinear), (2, Linear)], ids=["one thread", "two"]
)
def test_layers_are_shared_out_where_the_blas_uses_one_thread(
    folder: pathlib.Path, monkeypatch, threads, kind
):
    monkeypatch.setattr(kernels, "available", lambda: False)  # they share rows out themselves
    monkeypatch.setattr(blas, "threads", lambda: threads)
    monkeypatch.setattr(blas, "processors", lambda: 2 * threads)
    model = load(tiny_models.make(folder / f"parted-{threads}", "llama"))
    assert type(model.network.model.layers[0].self_attn.q_proj) is kind
