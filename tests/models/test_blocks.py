"""Blocks against plain mlx, plain mlx-lm, and what their formulas say in float64."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten, tree_unflatten
from support import plain_wiring, tiny_models

from cowmlx.accelerate.device import prepare_for_device
from cowmlx.networks import light_route
from cowmlx.networks.wiring import WiredModel, Wiring

D, VOCABULARY = 16, 13
IDS = mx.array([[1, 5, 3, 8, 2], [0, 2, 10, 12, 7]])


def network(type, **parameters):
    """A network of an embedding and one block, with random weights, and these by name."""
    wiring = Wiring().add_block("tokens", "embedding", num_embeddings=VOCABULARY, dims=D)
    wiring.add_block("it", type, **parameters).connect("tokens", "it")
    return filled(WiredModel(wiring))


def filled(model, scale=0.5):
    weights = {
        name: mx.random.normal(array.shape, key=mx.random.key(index)) * scale
        for index, (name, array) in enumerate(tree_flatten(model.parameters()))
    }
    model.update(tree_unflatten(list(weights.items())))
    return model, {name: np.asarray(array, np.float64) for name, array in weights.items()}


def embedded(weights):
    return weights["blocks.tokens.table.weight"][np.asarray(IDS)]


def near(got, expected, tolerance=1e-5):
    assert got.shape == expected.shape
    return np.abs(np.asarray(got) - np.asarray(expected)).max() <= tolerance


# -------------------------------------------------------------------- Without a state


@pytest.mark.parametrize("bias", [True, False])
def test_linear(bias):
    model, w = network("linear", input_dims=D, output_dims=7, bias=bias)
    expected = embedded(w) @ w["blocks.it.linear.weight"].T
    assert ("blocks.it.linear.bias" in w) == bias
    assert near(model(IDS), expected + (w["blocks.it.linear.bias"] if bias else 0))


@pytest.mark.parametrize("float32", [True, False])
def test_rms_norm(float32):
    model, w = network("rms_norm", dims=D, eps=0.1, float32=float32)
    x = embedded(w)
    scale = np.sqrt((x**2).mean(axis=-1, keepdims=True) + 0.1)
    assert near(model(IDS), x / scale * w["blocks.it.weight"])


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm(bias):
    model, w = network("layer_norm", dims=D, eps=0.1, bias=bias)
    x = embedded(w)
    x = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 0.1)
    expected = x * w["blocks.it.norm.weight"]
    assert ("blocks.it.norm.bias" in w) == bias
    assert near(model(IDS), expected + (w["blocks.it.norm.bias"] if bias else 0))


@pytest.mark.parametrize(
    ("activation", "formula"),
    [
        ("gelu", nn.gelu),
        ("gelu_approx", nn.gelu_approx),
        ("relu", lambda x: mx.maximum(x, 0)),
        ("relu2", lambda x: mx.square(mx.maximum(x, 0))),
        ("silu", lambda x: x * mx.sigmoid(x)),
        ("tanh", mx.tanh),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_mlp(activation, formula, bias):
    model, w = network("mlp", dims=D, hidden_dims=9, activation=activation, bias=bias)

    def linear(name, x):
        y = x @ w[f"blocks.it.{name}.weight"].T
        return y + w[f"blocks.it.{name}.bias"] if bias else y

    hidden = np.asarray(formula(mx.array(linear("up_proj", embedded(w)))), np.float64)
    assert near(model(IDS), linear("down_proj", hidden), 1e-4)


def test_mlp_takes_gelu_unless_said_otherwise():
    plain, _ = network("mlp", dims=D, hidden_dims=9)
    named, _ = network("mlp", dims=D, hidden_dims=9, activation="gelu")
    assert mx.array_equal(plain(IDS), named(IDS))


@pytest.mark.parametrize("bias", [True, False])
def test_swiglu(bias):
    model, w = network("swiglu", dims=D, hidden_dims=9, bias=bias)

    def linear(name, x):
        y = x @ w[f"blocks.it.{name}.weight"].T
        return y + w[f"blocks.it.{name}.bias"] if bias else y

    gate = linear("gate_proj", embedded(w))
    hidden = gate / (1 + np.exp(-gate)) * linear("up_proj", embedded(w))
    assert near(model(IDS), linear("down_proj", hidden))


@pytest.mark.parametrize("soft_cap", [None, 0.5, 30.0])
@pytest.mark.parametrize("bias", [True, False])
def test_lm_head(soft_cap, bias):
    model, w = network("lm_head", dims=D, num_embeddings=9, soft_cap=soft_cap, bias=bias)
    logits = embedded(w) @ w["blocks.it.linear.weight"].T
    logits = logits + w["blocks.it.linear.bias"] if bias else logits
    expected = logits if soft_cap is None else soft_cap * np.tanh(logits / soft_cap)
    assert near(model(IDS), expected)


@pytest.mark.parametrize("soft_cap", [None, 0.5])
def test_a_tied_lm_head_has_the_embedding_s_weights(soft_cap):
    model, w = network(
        "lm_head", dims=D, num_embeddings=VOCABULARY, embedding="tokens", soft_cap=soft_cap
    )
    assert list(w) == ["blocks.tokens.table.weight"]
    logits = embedded(w) @ w["blocks.tokens.table.weight"].T
    assert near(model(IDS), logits if soft_cap is None else soft_cap * np.tanh(logits / soft_cap))


def test_logits_are_float32_whatever_the_weights_are():
    model, _ = network("lm_head", dims=D, num_embeddings=9, soft_cap=3.0)
    model.set_dtype(mx.bfloat16)
    assert model(IDS).dtype == mx.float32


# ----------------------------------------------------------------------- Attention


def like_llama(size, windows=(None, None, None), **attention):
    """The wiring of a tiny llama, and where the weights of mlx-lm's are in it."""
    wiring = Wiring().add_block("tokens", "embedding", num_embeddings=size, dims=64)
    places = {"model.embed_tokens": "blocks.tokens.table"}
    stream = "tokens"
    for index, window in enumerate(windows):
        for part, name in (("attention", "input_layernorm"), ("mlp", "post_attention_layernorm")):
            norm, layer, total = f"{part}_norm_{index}", f"{part}_{index}", f"{part}_sum_{index}"
            wiring.add_block(norm, "rms_norm", dims=64, eps=1e-5)
            places[f"model.layers.{index}.{name}"] = f"blocks.{norm}"
            if part == "attention":
                own = {"dims": 64, "num_heads": 4, "num_kv_heads": 2, "window": window}
                wiring.add_block(layer, "attention", **own, **attention)
                places[f"model.layers.{index}.self_attn"] = f"blocks.{layer}.self_attn"
            else:
                wiring.add_block(layer, "swiglu", dims=64, hidden_dims=96)
                places[f"model.layers.{index}.mlp"] = f"blocks.{layer}"
            wiring.add_block(total, "identity", dims=64)
            wiring.chain(stream, norm, layer, total).connect(stream, total)
            stream = total
    wiring.add_block("norm", "rms_norm", dims=64, eps=1e-5)
    wiring.add_block("head", "lm_head", dims=64, num_embeddings=size)
    wiring.chain(stream, "norm", "head")
    places |= {"model.norm": "blocks.norm", "lm_head": "blocks.head.linear"}
    return wiring, places


def renamed(name, places):
    for old, new in places.items():
        if name.startswith(f"{old}."):
            return new + name[len(old) :]
    raise KeyError(name)


@pytest.mark.parametrize(
    ("attention", "config"),
    [
        ({}, {}),
        ({"rope_theta": 500.0}, {"rope_theta": 500.0}),
        ({"rope_traditional": True}, {"rope_traditional": True}),
        ({"head_dim": 32}, {"head_dim": 32}),
        ({"bias": True}, {"attention_bias": True}),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        ),
        (
            {"windows": (6, None, 6)},
            {
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                "sliding_window": 6,
            },
        ),
    ],
    ids=lambda value: "-".join(value) or "plain",
)
def test_a_wiring_like_llama_gives_llama_s_logits_and_tokens(attention, config):
    llama = light_route.import_module("models.llama")
    config = {**tiny_models.FAMILIES["llama"], "vocab_size": 50, **config}
    plain, _ = filled(llama.Model(llama.ModelArgs.from_dict(config)), scale=0.2)
    wiring, places = like_llama(50, **attention)
    wired = WiredModel(wiring)
    stored = [(renamed(name, places), array) for name, array in tree_flatten(plain.parameters())]
    wired.load_weights(stored, strict=True)
    for model in (plain, wired):  # mlx-lm's functions may be bound to kernels in this process
        prepare_for_device(model)
    caches = light_route.import_module("models.cache")
    layers = [caches.make_prompt_cache(plain), wired.make_cache()]
    ids = mx.array([[number * 7 % 50 for number in range(9)]])
    for _ in range(12):
        one, other = (
            model(ids, cache) for model, cache in zip((plain, wired), layers, strict=True)
        )
        assert mx.array_equal(one, other)
        ids = one[:, -1:].argmax(axis=-1)


def test_attention_with_a_window_forgets_what_is_before_it():
    model, _ = network("attention", dims=D, num_heads=2, window=3)
    ids = mx.array([[1, 2, 3, 4, 5, 6]])
    changed = mx.array([[9, 8, 7, 4, 5, 6]])
    one, other = model(ids), model(changed)
    assert mx.allclose(one[:, 5], other[:, 5], atol=1e-6)
    assert not mx.allclose(one[:, 4], other[:, 4], atol=1e-3)
    layers = model.make_cache()
    stepped = [model(ids[:, place : place + 1], layers) for place in range(6)]
    assert mx.allclose(mx.concatenate(stepped, axis=1), one, atol=1e-5)


# -------------------------------------------------------------------------- mLSTM


MLSTM = {"num_heads": 2, "qk_dims": 8, "v_dims": 12, "hidden_dims": 10, "chunk_size": 2}


@pytest.mark.parametrize("changes", [{}, {"norm_eps": 0.3}, {"eps": 0.5}, {"gate_soft_cap": 0.4}])
@pytest.mark.parametrize("bias", [True, False])
def test_mlstm(changes, bias):
    """The values of xLSTM 7B are those of test_xlstm_golden; here, others that matter more."""
    model, w = network("mlstm", dims=D, bias=bias, **MLSTM, **changes)
    it = plain_wiring.Weights(w, "blocks.it.")
    expected = [plain_wiring.mlstm(it, x, dims=D, **MLSTM, **changes) for x in embedded(w)]
    assert near(model(IDS), np.stack(expected), 1e-4)


@pytest.mark.parametrize("changes", [{}, {"gate_soft_cap": None}, {"norm_float32": False}])
def test_fused_mlstm(changes):
    single, weights = network("mlstm", dims=D, bias=True, **MLSTM, **changes)
    fused, _ = network("mlstm", dims=D, bias=True, fused=True, **MLSTM, **changes)
    fused.load_weights([(name, mx.array(array)) for name, array in stacked(weights).items()])
    assert mx.allclose(single(IDS), fused(IDS), atol=1e-5)


def stacked(weights):
    """Rows of matrices that read the same vector, on top of each other."""
    groups = {
        "mlstm_layer.qkv_opreact": ["mlstm_layer." + name for name in ("q", "k", "v")]
        + ["mlstm_layer.ogate_preact"],
        "mlstm_layer.ifgate_preact": ["mlstm_layer.igate_preact", "mlstm_layer.fgate_preact"],
        "ffn.proj_up_gate_z": ["ffn.proj_up_gate", "ffn.proj_up"],
    }
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    for whole, parts in groups.items():
        for leaf in ("weight", "bias"):
            rows = [weights.pop(f"blocks.it.{part}.{leaf}") for part in parts]
            weights[f"blocks.it.{whole}.{leaf}"] = np.concatenate(rows)
    return weights


def test_states_are_float32_whatever_the_weights_are():
    for type, more in (("mlstm", {"qk_dims": 8, "v_dims": 8}), ("slstm", {})):
        model, _ = network(type, dims=D, num_heads=2, hidden_dims=8, **more)
        model.set_dtype(mx.bfloat16)
        layers = model.make_cache()
        for ids in (IDS, IDS[:, :1]):
            assert model(ids, layers).dtype == mx.bfloat16
            count = 4 if type == "slstm" else 3
            assert all(part.dtype == mx.float32 for part in layers[0].cache[:count])
