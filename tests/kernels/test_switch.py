"""Experts in blocks against mlx-lm's own: layers of all kinds and shapes, and whole networks."""

from __future__ import annotations

import copy
import pathlib
import subprocess
import sys
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx.nn.layers.base import Module
from support import tiny_models
from support.loaded import drain, load
from support.paths import ROOT

from cowmlx.accelerate import blocks, kernels, linear, switch
from cowmlx.cache.batch import Batch
from cowmlx.cache.sequence import share
from cowmlx.generated.constants import ACTIVATIONS_EXACT, ACTIVATIONS_INT8
from cowmlx.models import fingerprint, network
from cowmlx.models.model import Model
from cowmlx.networks import light_route
from cowmlx.quantized_formats import FORMATS

pytestmark = [
    pytest.mark.skipif(not kernels.available(), reason="there are no kernels here"),
    pytest.mark.usefixtures("on_cpu"),
]

NEAR = 5e-5
FAMILIES = (
    ("mixtral", 9),
    ("qwen3_moe", 9),
    ("gpt_oss", 9),
    ("deepseek_v3", 6),
    ("jamba", 6),
    ("granitemoehybrid", 9),
    ("qwen3_next", 12),
)
FOUR_BITS = {"group_size": 32, "bits": 4}
PACKINGS: dict[str, dict[str, Any] | None] = {
    "float32": None,
    "4 bits": FOUR_BITS,
    "mxfp4": {"group_size": 32, "bits": 4, "mode": "mxfp4"},
}
KINDS = [
    None,
    *(("affine", bits, 64) for bits in (2, 3, 4, 5, 6, 8)),
    ("affine", 4, 32),
    ("affine", 4, 128),
    *(
        (mode, known.bits[0], known.groups[0])
        for mode, known in FORMATS.items()
        if not known.affine
    ),
]
# Shapes of x and of indices below 4: a step, one row for many experts, sorted rows, rows behind
# each other, and those whose leading axes have to be broadcast, as DeepSeek's grouped projections.
SHAPES = [
    ((1, 1, 1, 1), (1, 1, 2)),
    ((2, 3, 1, 1), (2, 3, 4)),
    ((2, 3, 4, 1), (2, 3, 4)),
    ((70, 1), (70,)),
    ((5, 3), (5,)),
    ((6, 4, 1), (1, 4)),
    ((1, 1), (2, 3)),
    ((3, 1), ()),
]


class Holder(Module):
    """A network of some layers."""

    def __init__(self, *layers: Module):
        super().__init__()
        self.layers = list(layers)


def experts(
    kind: tuple[str, int, int] | None, *, rows: int = 20, bias: bool = True, dtype: Any = mx.float32
) -> Any:
    """Return mlx-lm's own layer of four experts, of 128 columns."""
    made = light_route.import_module("models.switch_layers").SwitchLinear(128, rows, 4, bias=bias)
    made.weight = mx.random.normal((4, rows, 128), key=mx.random.key(1)).astype(dtype)
    if bias:
        made.bias = mx.random.normal((4, rows), key=mx.random.key(2)).astype(dtype)
    if kind is not None:
        mode, bits, group = kind
        made = made.to_quantized(group_size=group, bits=bits, mode=mode)
    made.eval()
    return made


def in_blocks(layer: Any, *, rounded: bool = False) -> Any:
    made = copy.deepcopy(layer)
    linear.replace(Holder(made), rounded=rounded)
    return made


def inputs(shape: tuple[int, ...], indices: tuple[int, ...]) -> tuple[mx.array, mx.array, bool]:
    x = mx.random.normal((*shape, 128), key=mx.random.key(3))
    chosen = mx.random.randint(0, 4, indices, key=mx.random.key(4)).astype(mx.uint32)
    in_order = len(indices) == 1
    return x, mx.sort(chosen) if in_order else chosen, in_order


def assert_near(own: mx.array, expected: mx.array, near: float = NEAR) -> None:
    assert own.shape == expected.shape
    assert own.dtype == expected.dtype
    scale = mx.maximum(mx.abs(expected).max(), 1e-3)
    assert (mx.abs(own - expected).max() / scale).item() < near


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_layers_give_what_mlx_gives(kind, bias):
    plain = experts(kind, bias=bias)
    own = in_blocks(plain)
    assert isinstance(own, switch.InExperts)
    assert isinstance(own, type(plain))
    assert type(own).__name__ == f"Block{type(plain).__name__}"
    for shape, indices in SHAPES:
        x, chosen, in_order = inputs(shape, indices)
        assert_near(own(x, chosen, in_order), plain(x, chosen, sorted_indices=in_order))


@pytest.mark.parametrize("kind", [None, ("affine", 4, 64)], ids=str)
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=str)
def test_sixteen_bits_keep_the_type_of_activations(kind, dtype):
    """On a CPU mlx has no such products of 16 bits: what they round is float32's."""
    layer = experts(kind, dtype=dtype)
    x, chosen, _ = inputs((2, 3, 1, 1), (2, 3, 4))
    x = x.astype(dtype)
    wide = copy.deepcopy(layer)
    wide.set_dtype(mx.float32)
    expected = wide(x.astype(mx.float32), chosen).astype(dtype)
    for own in (in_blocks(layer), in_blocks(layer).train()):
        assert_near(own(x, chosen), expected, 2.0**-6)
    held = in_blocks(layer)
    if kind is None:
        assert held["weight"].dtype == held.weight.dtype == dtype  # not as float32
    else:
        assert held["scales"].dtype == dtype
        assert held.scales.dtype == mx.float32  # what the network counts it as


@pytest.mark.parametrize("int8", [False, True], ids=["exact", "int8"])
@pytest.mark.parametrize("kind", [None, ("affine", 4, 64), ("mxfp4", 4, 32)], ids=str)
def test_a_row_gives_the_same_bits_alone_and_among_others(kind, int8):
    own = in_blocks(experts(kind), rounded=int8)
    x, chosen, _ = inputs((90, 1, 1), (90, 2))
    together = own(x, chosen)
    assert mx.array_equal(together, own(x, chosen))
    for row in (0, 17, 89):
        alone = own(x[row : row + 1], chosen[row : row + 1])
        assert mx.array_equal(alone[0], together[row])
    order = mx.argsort(chosen[:, 0])
    in_order = own(x[order][:, 0], chosen[order, 0], sorted_indices=True)
    assert mx.array_equal(in_order, together[order, 0])


def test_rounded_activations_are_near_and_not_exact():
    layer = experts(("affine", 4, 64), bias=False)
    x, chosen, _ = inputs((8, 1, 1), (8, 2))
    rounded, exact = in_blocks(layer, rounded=True)(x, chosen), in_blocks(layer)(x, chosen)
    difference = mx.abs(rounded - exact).max() / mx.abs(exact).max()
    assert 0 < difference.item() < 0.05
    dense = experts(None)
    assert mx.array_equal(in_blocks(dense, rounded=True)(x, chosen), in_blocks(dense)(x, chosen))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("rows", [16, 20])
def test_others_see_what_was_put_in(kind, rows):
    layer = experts(kind, rows=rows)
    own = in_blocks(layer)
    assert (own.input_dims, own.output_dims, own.num_experts) == (128, rows, 4)
    shown = blocks.parameters(own)
    for name in ("weight", "scales", "biases"):
        if name in layer:
            assert own[name].ndim == 3
            assert own[name].shape[0] == 4 * ((rows + 15) // 16)
            assert (shown[name].shape, shown[name].dtype) == (layer[name].shape, layer[name].dtype)
            assert mx.array_equal(getattr(own, name), layer[name])
    again = blocks.restore(own)
    assert type(again) is type(layer)
    for name, value in layer.parameters().items():
        assert mx.array_equal(again[name], value)
    x, chosen, _ = inputs((2, 1, 1), (2, 2))
    assert mx.array_equal(again(x, chosen), layer(x, chosen))


_slices = st.builds(slice, st.integers(0, 20), st.integers(0, 40), st.integers(1, 9))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4), st.integers(1, 40), st.integers(1, 30), st.tuples(*[_slices] * 3))
def test_parts_are_those_of_the_whole(count, rows, words, slices):
    stacked = (count,) if count else ()
    array = mx.random.normal((*stacked, rows, words), key=mx.random.key(rows))
    pack = switch.in_blocks if count else kernels.module().pack
    held = blocks.Rowwise(pack(array), rows, False, count)
    asked = (*slices[3 - array.ndim :], ...)
    assert mx.array_equal(held.array(), array)
    assert mx.array_equal(held[asked], array[asked])


def test_tied_experts_are_held_once():
    layer = experts(("affine", 4, 64))
    other = copy.deepcopy(layer)
    for name in ("weight", "scales", "biases"):
        other[name] = layer[name]
    linear.replace(Holder(layer, other))
    assert all(layer[name] is other[name] for name in ("weight", "scales", "biases"))
    x, chosen, _ = inputs((2, 1, 1), (2, 2))
    assert mx.array_equal(layer(x, chosen), other(x, chosen))


def test_weights_that_no_kernel_takes_stay_mlx_lms():
    layers = light_route.import_module("models.switch_layers")
    scaled = layers.QuantizedSwitchLinear(64, 16, 2, False, 16, 4, "nvfp4", global_scale=True)
    odd = layers.SwitchLinear(64, 16, 2)
    odd.weight = odd.weight.astype(mx.int32)
    holder = Holder(scaled, odd)
    linear.replace(holder)
    assert [type(layer) for layer in holder.layers] == [
        layers.QuantizedSwitchLinear,
        layers.SwitchLinear,
    ]


@pytest.mark.parametrize("kind", [None, ("affine", 4, 64), ("mxfp4", 4, 32)], ids=str)
def test_gradients_are_mlxs_own(kind):
    plain = experts(kind)
    own = in_blocks(plain)
    own.train()
    x, chosen, in_order = inputs((2, 3, 1, 1), (2, 3, 4))
    found, expected = (
        mx.grad(lambda x, each=each: each(x, chosen, in_order).square().sum())(x)
        for each in (own, plain)
    )
    assert_near(found, expected)
    assert mx.abs(found).max().item() > 0
    own.eval()
    assert_near(own(x, chosen), own.train()(x, chosen))


def test_those_of_a_host_that_has_imported_mlx_lm_itself_are_replaced():
    program = """
import mlx.core as mx
mx.set_default_device(mx.cpu)
from mlx_lm.models.switch_layers import SwitchGLU
from cowmlx.accelerate import linear
layer = SwitchGLU(32, 48, 4)
layer.eval()
x, chosen = mx.ones((3, 32)), mx.array([[0, 1], [3, 2], [1, 1]])
expected = layer(x, chosen)
mx.eval(expected)
linear.replace(layer)
print(type(layer.up_proj).__name__, mx.allclose(layer(x, chosen), expected, atol=1e-5).item())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["BlockSwitchLinear", "True"], done.stderr


# ------------------------------------------------------------------------ Networks

PROMPT = [3, 5, 7, 2, 9, 11, 4, 8, 1, 6, 12, 13]


def pair(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Model, Model]:
    """A model, and the same with experts of mlx-lm."""
    own = load(path)
    with monkeypatch.context() as patch:
        patch.setattr(switch, "kind_of", lambda module: None)
        return own, load(path)


def count(model: Model) -> int:
    return sum(isinstance(each, switch.InExperts) for _, each in model.network.named_modules())


def run(model: Model, caches: list[Any], tokens: list[int]) -> mx.array:
    logits: mx.array = model.network(mx.array([tokens], mx.int32), cache=caches)[0]
    mx.eval(logits, [cache.state for cache in caches])
    return logits


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(("family", "layers"), FAMILIES)
def test_networks_give_what_they_give_with_mlxs_own(tmp_path, monkeypatch, family, layers, packing):
    models = pair(tiny_models.make(tmp_path, family, quantize=PACKINGS[packing]), monkeypatch)
    assert [count(model) for model in models] == [layers, 0]
    caches = [model.make_cache() for model in models]
    long = [(7 * index) % 300 for index in range(40)]  # beyond where mlx-lm sorts
    for prompt in (PROMPT, long):
        own, expected = (run(m, c, prompt) for m, c in zip(models, caches, strict=True))
        assert_near(own, expected)
    token = int(mx.argmax(expected[-1]).item())
    for _ in range(12):
        own, expected = (run(m, c, [token]) for m, c in zip(models, caches, strict=True))
        assert_near(own, expected)
        token = int(mx.argmax(expected[-1]).item())
        assert token == int(mx.argmax(own[-1]).item())


@pytest.mark.parametrize("packing", PACKINGS)
def test_what_is_told_of_a_model_is_what_its_files_hold(tmp_path, monkeypatch, packing):
    config = {"moe_intermediate_size": 32 if packing != "float32" else 40}  # 40: no whole blocks
    path = tiny_models.make(tmp_path, "qwen3_moe", quantize=PACKINGS[packing], config=config)
    own, plain = pair(path, monkeypatch)
    assert count(own) == 9
    told, expected = own.info(), plain.info()
    assert (told["parameters"], told["bytes"]) == (expected["parameters"], expected["bytes"])
    assert told["kernels"] == expected["kernels"]
    prints = [drain(fingerprint.compute(model))[0] for model in (own, plain)]
    assert prints[0].model == prints[1].model


@pytest.mark.parametrize("int8", [False, True], ids=["exact", "int8"])
def test_rows_of_a_batch_and_forks(tmp_path, int8):
    path = tiny_models.make(tmp_path, "qwen3_moe", quantize=FOUR_BITS)
    model = load(path, activations=ACTIVATIONS_INT8 if int8 else ACTIVATIONS_EXACT)
    prompts = [PROMPT[:9], PROMPT[3:6], PROMPT[5:10]]
    batch = Batch(model.make_cache(), mx.default_stream(mx.default_device()))
    alone = []
    for prompt in prompts:
        caches = model.make_cache()
        run(model, caches, prompt)
        batch.join(share(caches), len(prompt))  # a fork
        alone.append(caches)
    for step in range(6):
        tokens = [(step * 5 + row) % 300 for row in range(len(prompts))]
        batch.begin_step(batch.rows.all)
        together = model.network(mx.array(tokens, mx.int32)[:, None], cache=batch.layers)[:, -1]
        batch.end_step()
        mx.eval(together, batch.arrays)
        for row, (token, caches) in enumerate(zip(tokens, alone, strict=True)):
            expected = run(model, caches, [token])
            assert mx.argmax(together[row]).item() == mx.argmax(expected[0]).item()
            # Rounded activations may fall to either side where sums of float32 differ.
            assert_near(together[row : row + 1], expected, 5e-2 if int8 else NEAR)


def test_networks_of_sixteen_bits_run(tmp_path):
    path = tiny_models.make(tmp_path, "mixtral")
    stored = mx.load(str(path / "model.safetensors"))
    half = {name: array.astype(mx.bfloat16) for name, array in stored.items()}
    mx.save_safetensors(str(path / "model.safetensors"), half)
    model = load(path)
    assert not model.form.is_slow
    logits = run(model, model.make_cache(), PROMPT)
    wide = load(path)
    for _, module in wide.network.named_modules():
        blocks.restore(module)
    wide.network.set_dtype(mx.float32)
    expected = run(wide, wide.make_cache(), PROMPT)
    assert mx.argmax(logits[-1]).item() == mx.argmax(expected[-1]).item()


def test_networks_that_are_shared_for_adapters_share_experts(tmp_path):
    model = load(tiny_models.make(tmp_path, "mixtral", quantize=FOUR_BITS))
    other = network.share(model.network)
    pairs = zip(model.network.modules(), other.modules(), strict=True)
    shared = [(one, two) for one, two in pairs if isinstance(one, switch.InExperts)]
    assert len(shared) == 9
    for one, two in shared:
        assert one is not two
        assert all(one[name] is two[name] for name in ("weight", "scales", "biases"))
