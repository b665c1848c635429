"""Networks whose single operations are computed by kernels, against mlx's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.nn.utils import value_and_grad
from numbers_of_kernels import random
from support import tiny_models
from support.kernel_module import needed

from cowmlx.accelerate import operations, single
from cowmlx.accelerate import rope as angles
from cowmlx.models import registry
from cowmlx.networks import light_route

MODULE = needed()


def same(a: mx.array, b: mx.array, tolerance: float = 1e-5) -> bool:
    return (
        a.dtype == b.dtype and a.shape == b.shape and bool(mx.allclose(a, b, tolerance, tolerance))
    )


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.RMSNorm(40), (2, 3, 40)),
        (lambda: nn.LayerNorm(40), (2, 3, 40)),
        (lambda: nn.LayerNorm(40, affine=False), (5, 40)),
        (lambda: nn.LayerNorm(40, bias=False), (40,)),
        (lambda: nn.RoPE(16), (2, 3, 5, 40)),
        (lambda: nn.RoPE(40, traditional=True, base=500.0, scale=0.5), (2, 5, 40)),
    ],
)
def test_modules_give_what_mlx_s_give(make, shape):
    network = nn.Sequential(make())
    for name, value in list(network.layers[0].items()):
        if isinstance(value, mx.array):
            network.layers[0][name] = random(value.shape, "float32", 5)
    x = random(shape, "float32")
    wanted = network(x)
    single.replace(network)
    assert type(network.layers[0]).__name__.startswith("Kernel")
    assert same(network(x), wanted)


def test_positions_of_caches_that_are_counted_up_in_place():
    """An array's name that is written to is another array: its angles are not the old ones."""
    rope, x = single.KernelRoPE(16), random((2, 3, 1, 16), "float32")
    offset = mx.array([3, 8])
    for _ in range(3):
        wanted = nn.RoPE(16)(x, offset=offset)
        assert same(rope(x, offset=offset), wanted)
        offset += 1


def test_layers_share_angles():
    one = angles.shared(16, 10000.0, None, 1.0)
    assert angles.shared(16, 10000.0, None, 1.0) is one
    assert angles.shared(16, 10000.0, None, 0.5) is not one
    assert one.get(5, 3) is one.get(5, 3)
    first = one.get(mx.array([5, 5]), 3)
    assert first.shape == (2, 3, 2, 8)
    assert not mx.array_equal(one.get(6, 3)[0], first[0])
    freqs = random((8,), "float32")
    two = angles.shared(16, None, freqs, 1.0)
    assert angles.shared(16, None, freqs, 1.0) is two
    freqs += 1
    assert angles.shared(16, None, freqs, 1.0) is not two
    for base in range(100):
        angles.shared(16, float(base + 2), None, 1.0)
    assert len(angles._kinds) <= angles._MOST_KINDS


def test_frequencies_of_their_own():
    x, freqs = random((2, 3, 5, 16), "float32"), mx.arange(1, 9).astype(mx.float32)
    for scale in (1.0, 0.5):
        options = {"traditional": False, "base": None, "scale": scale, "offset": 7, "freqs": freqs}
        assert same(operations.rope(x, 16, **options), mx.fast.rope(x, 16, **options))


def test_what_kernels_do_not_take_is_mlx_s():
    x = random((2, 3, 16), "float32")
    with mx.stream(mx.cpu):
        assert same(
            operations.rms_norm(x, None, 1e-5, stream=mx.cpu), operations.rms_norm(x, None, 1e-5)
        )
    whole = mx.arange(16).reshape(2, 8)
    assert operations.gated(whole, whole, "silu") is None
    q, k = random((1, 2, 3, 16), "float32"), random((1, 2, 5, 16), "float32", 1)
    wanted = mx.fast.scaled_dot_product_attention(q, k, k, scale=0.2)
    assert same(operations.scaled_dot_product_attention(q, k, k, scale=0.2), wanted)
    with pytest.raises(ValueError, match="mask"):
        operations.scaled_dot_product_attention(q, k, k, scale=0.2, mask="left")


def test_only_private_modules_are_bound():
    """What the host sees of mlx and of mlx-lm stays as it is."""
    fast = dict(vars(mx.fast))
    base = light_route.import_module("models.base")
    single.bind()
    assert base.mx is not mx
    assert base.mx.fast.rms_norm is operations.rms_norm
    assert base.mx.array is mx.array
    assert dict(vars(mx.fast)) == fast
    assert all(
        vars(module).get("mx") in (None, mx)
        for name, module in list(sys.modules.items())
        if name.startswith(("mlx", "mlx_lm")) and module is not None
    )


GRADIENTS = {
    "rms_norm": (
        lambda x, w: operations.rms_norm(x, w, 1e-5),
        lambda x, w: mx.fast.rms_norm(x, w, 1e-5),
    ),
    "layer_norm": (
        lambda x, w: operations.layer_norm(x, w, w, 1e-5),
        lambda x, w: mx.fast.layer_norm(x, w, w, 1e-5),
    ),
    "softmax": (lambda x, w: MODULE.softmax(x) * w, lambda x, w: mx.softmax(x, -1) * w),
    "silu": (lambda x, w: operations.gated(x, x * w, "silu"), lambda x, w: nn.silu(x) * x * w),
    "gelu": (lambda x, w: operations.gated(x, x * w, "gelu"), lambda x, w: nn.gelu(x) * x * w),
    "gelu_tanh": (
        lambda x, w: operations.gated(x, x * w, "gelu_tanh"),
        lambda x, w: nn.gelu_approx(x) * x * w,
    ),
    "relu2": (lambda x, w: operations.gated(x, x * w, "relu2"), lambda x, w: nn.relu2(x) * x * w),
    "rope": (
        lambda x, w: single.KernelRoPE(16)(x * w, offset=3),
        lambda x, w: nn.RoPE(16)(x * w, offset=3),
    ),
    "attention": (
        lambda x, w: operations.scaled_dot_product_attention(
            x, x * w, x * w + 1, scale=0.3, mask="causal", sinks=w[:2]
        ),
        lambda x, w: mx.fast.scaled_dot_product_attention(
            x, x * w, x * w + 1, scale=0.3, mask="causal", sinks=w[:2]
        ),
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_mlx_s(name):
    x, w = random((1, 2, 5, 16), "float32"), random((16,), "float32", 1)
    target = random((1, 2, 5, 16), "float32", 2)
    found, wanted = (
        mx.grad(lambda x, w, function=function: (function(x, w) * target).sum(), argnums=(0, 1))(
            x, w
        )
        for function in GRADIENTS[name]
    )
    for one, other in zip(found, wanted, strict=True):
        assert same(one, other, 1e-4)


def test_quantized_attention_says_that_it_has_no_gradient():
    q = random((1, 2, 3, 64), "float32")
    packed = mx.quantize(q, 64, 8)

    def loss(q: mx.array) -> mx.array:
        return operations.quantized_attention(q, packed, packed, 0.3, None, 64, 8).sum()

    with pytest.raises(ValueError, match="no gradient with quantized caches"):
        mx.eval(mx.grad(loss)(q))


def test_a_network_that_is_trained_has_its_gradients():
    from cowmlx.networks.blocks.mlstm import MLSTMBlock

    block = MLSTMBlock(dims=32, num_heads=2, qk_dims=16, v_dims=32, hidden_dims=48)
    x = random((2, 7, 32), "float32")
    wanted = value_and_grad(block, lambda x: (block(x) ** 2).sum())(x)
    single.replace(block)
    block.train()
    found = value_and_grad(block, lambda x: (block(x) ** 2).sum())(x)
    assert same(found[0], wanted[0], 1e-4)


@pytest.mark.parametrize("positions", [1, 2, 5, 70])
def test_the_mlstm_layer(positions):
    from cowmlx.networks.blocks.mlstm import MLSTMBlock

    block = MLSTMBlock(dims=32, num_heads=2, qk_dims=16, v_dims=32, hidden_dims=48)
    block.eval()
    states = block.make_state(), block.make_state()
    inputs = [random((2, positions, 32), "float32", seed) for seed in range(3)]
    wanted = [block(x, states[0]) for x in inputs]
    single.replace(block)
    for x, one in zip(inputs, wanted, strict=True):
        assert same(block(x, states[1]), one, 1e-4)


def load(path: Path) -> Any:
    """Load a model in one go."""
    loading = registry.load(str(path), adapter_path=None, lazy=False, trust_remote_code=False)
    while True:
        try:
            next(loading)
        except StopIteration as stop:
            return stop.value


def run(model: Any, tokens: list[int]) -> mx.array:
    """Logits of a prompt, and of two steps after it."""
    caches = light_route.cache_module(model.package).make_prompt_cache(model.network)
    parts = [
        model.network(mx.array([part]), cache=caches)
        for part in (tokens[:-2], tokens[-2:-1], tokens[-1:])
    ]
    return mx.concatenate(parts, axis=1)


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_families(family, tmp_path, monkeypatch):
    """Logits of prompts and of steps are those of mlx's own operations, within rounding."""
    model = load(tiny_models.make(tmp_path / family, family))
    tokens = [int(token) for token in mx.random.randint(0, 60, (40,), key=mx.random.key(1))]
    found = run(model, tokens)
    mx.eval(found)
    monkeypatch.setattr(operations, "_takes", lambda *_: False)
    wanted = run(model, tokens)
    assert same(found, wanted, 1e-3 * float(mx.abs(wanted).max()))
    assert mx.array_equal(found.argmax(-1), wanted.argmax(-1))


@pytest.mark.parametrize("mask", [None, "causal", "array"])
@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_caches_of_mlx_lm(bits, mask):
    base = light_route.import_module("models.base")
    single.bind()
    q, k = random((2, 6, 4, 64), "float32"), random((2, 3, 9, 64), "float32", 1)
    packed = mx.quantize(k, 32, bits)
    plain = mx.dequantize(*packed, 32, bits)
    what = mx.random.uniform(shape=(2, 1, 4, 9)) < 0.8 if mask == "array" else mask
    wanted = mx.fast.scaled_dot_product_attention(q, plain, plain, scale=0.2, mask=what)
    found = base.quantized_scaled_dot_product_attention(
        q, packed, packed, 0.2, what, group_size=32, bits=bits
    )
    assert same(found, wanted)
