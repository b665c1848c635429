"""Gemma 3 whose tokens see those behind them, beside the same written in numpy."""

from __future__ import annotations

import json
from math import tanh

import mlx.core as mx
import numpy as np
import pytest
from support import tiny_models
from support.callbacks import refused
from support.signatures import (
    ADD_SPECIAL,
    EFORMAT,
    EUNSUPPORTED,
    POOLING_CLS,
    POOLING_LAST,
    POOLING_MEAN,
)

from cowmlx.models.converting import output, sources
from cowmlx.steps import finished

BOTH = {"use_bidirectional_attention": True, "architectures": ["Gemma3TextModel"]}
TEXTS = [
    "fox",
    "A model reads tokens and writes tokens; every token is a piece.",
    "The dog sleeps.",
]
CLOSE = 1e-4
GELU = np.vectorize(lambda x: x / 2 * (1 + tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))))


def encoder(path):
    """A folder as EmbeddingGemma's: names without "model.", and no head."""
    config = {"head_dim": 8, "query_pre_attn_scalar": 12, "rope_theta": 1e6}
    folder = tiny_models.make(path, "gemma3_text", config=config)
    tiny_models.change_config(folder, BOTH)
    file = str(folder / "model.safetensors")
    stored = dict(mx.load(file))
    kept = {k.removeprefix("model."): v for k, v in stored.items() if "lm_head" not in k}
    mx.eval(kept)
    mx.save_safetensors(file, kept, {"format": "mlx"})
    return folder


class Written:
    """The hidden states of transformers' Gemma3TextModel."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        stored = mx.load(str(folder / "model.safetensors"))
        self.weights = {name: np.array(own, np.float64) for name, own in stored.items()}

    def norm(self, name, x):
        root = np.sqrt((x**2).mean(-1, keepdims=True) + self.config["rms_norm_eps"])
        return x / root * (1 + self.weights[f"{name}.weight"])

    def mapped(self, name, x):
        return x @ self.weights[f"{name}.weight"].T

    def turned(self, x, base):
        half = x.shape[-1] // 2
        angles = np.arange(x.shape[0])[:, None] * base ** (-np.arange(half) / half)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def attention(self, name, x, sliding):
        config, count = self.config, len(x)
        base = config["rope_local_base_freq" if sliding else "rope_theta"]
        heads, few = config["num_attention_heads"], config["num_key_value_heads"]
        q, k, v = (self.mapped(f"{name}.{own}_proj", x).reshape(count, -1, 8) for own in "qkv")
        q = self.turned(self.norm(f"{name}.q_norm", q), base)
        k = self.turned(self.norm(f"{name}.k_norm", k), base)
        places = np.arange(count)
        far = np.abs(places[:, None] - places) >= config["sliding_window"] // 2 + 1
        made = []
        for head in range(heads):
            own = head * few // heads
            scores = q[:, head] @ k[:, own].T * config["query_pre_attn_scalar"] ** -0.5
            scores = np.where(far & sliding, -np.inf, scores)
            parts = np.exp(scores - scores.max(-1, keepdims=True))
            made.append(parts / parts.sum(-1, keepdims=True) @ v[:, own])
        return self.mapped(f"{name}.o_proj", np.concatenate(made, axis=-1))

    def states(self, tokens):
        config = self.config
        x = self.weights["embed_tokens.weight"][tokens] * config["hidden_size"] ** 0.5
        for index in range(config["num_hidden_layers"]):
            name = f"layers.{index}"
            sliding = (index + 1) % config["sliding_window_pattern"] != 0
            own = self.attention(
                f"{name}.self_attn", self.norm(f"{name}.input_layernorm", x), sliding
            )
            x = x + self.norm(f"{name}.post_attention_layernorm", own)
            own = self.norm(f"{name}.pre_feedforward_layernorm", x)
            gate, up = (self.mapped(f"{name}.mlp.{part}_proj", own) for part in ("gate", "up"))
            own = self.mapped(f"{name}.mlp.down_proj", GELU(gate) * up)
            x = x + self.norm(f"{name}.post_feedforward_layernorm", own)
        return self.norm("norm", x)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return encoder(tmp_path_factory.mktemp("gemma") / "model")


@pytest.fixture(scope="module")
def model(lib, folder):
    handle = lib.load(folder)
    yield handle
    lib.free_model(handle)


def test_vectors_are_those_of_the_network_in_numpy(lib, folder, model):
    written = Written(folder)
    states = [written.states(lib.tokenize(model, text, ADD_SPECIAL)) for text in TEXTS]
    assert max(map(len, states)) > 16  # more than the windows of both sides
    for pooling, expected in (
        (POOLING_CLS, [own[0] for own in states]),
        (POOLING_LAST, [own[-1] for own in states]),
        (POOLING_MEAN, [own.mean(0) for own in states]),
    ):
        got = lib.embed(model, TEXTS, pooling=pooling, normalize=False)
        np.testing.assert_allclose(got, expected, rtol=CLOSE, atol=CLOSE)
    alone = [lib.embed(model, [text])[0] for text in TEXTS]
    np.testing.assert_allclose(lib.embed(model, TEXTS), alone, atol=1e-6)
    info = lib.info(model)
    assert info["tasks"] == ["embed"] and info["architecture"] == "gemma3_text"
    refused(EUNSUPPORTED, "gemma3_text encoder", lambda: lib.context(model))


def test_the_last_token_of_one_layer_sees_what_mlx_lms_network_sees(lib, tmp_path):
    changes = {"num_hidden_layers": 1, "sliding_window": 64, "sliding_window_pattern": 1}
    made = []
    for config in ({}, BOTH):
        folder = tiny_models.make(tmp_path / str(len(config)), "gemma3_text", config=changes)
        model = lib.load(tiny_models.change_config(folder, config))
        made.append(lib.embed(model, TEXTS, pooling=POOLING_LAST))
        lib.free_model(model)
    np.testing.assert_allclose(*made, atol=1e-3)  # mlx-lm rounds the root of D to bfloat16


def test_transformers_5_names_rotations_and_layers_otherwise(lib, folder, model, tmp_path):
    kinds = ["sliding_attention", "full_attention"]
    bases = dict(zip(kinds, (1e4, 1e6), strict=True))
    new = {
        "layer_types": kinds * 2,
        "rope_parameters": {k: {"rope_type": "default", "rope_theta": v} for k, v in bases.items()},
        "sliding_window_pattern": None,
        "rope_theta": None,
        "rope_local_base_freq": None,
    }
    other = encoder(tmp_path / "new")
    tiny_models.change_config(other, new)
    handle = lib.load(other)
    np.testing.assert_array_equal(lib.embed(handle, TEXTS), lib.embed(model, TEXTS))
    lib.free_model(handle)


def test_a_converted_folder_gives_the_same(lib, folder, model, tmp_path):
    finished(
        output.write(sources.read(str(folder), None, None), str(tmp_path / "new"), {}, 1 << 20)
    )
    handle = lib.load(tmp_path / "new")
    np.testing.assert_array_equal(lib.embed(handle, TEXTS), lib.embed(model, TEXTS))
    lib.free_model(handle)
    handle = lib.load(folder, quantize_bits=8, quantize_group=32)
    np.testing.assert_allclose(lib.embed(handle, TEXTS), lib.embed(model, TEXTS), atol=0.05)
    lib.free_model(handle)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_key_value_heads": 3}, "num_key_value_heads 3"),
        ({"head_dim": 7}, "head_dim 7"),
        ({"layer_types": ["full_attention"]}, "layer_types 4"),
        ({"architectures": ["Gemma3TextForSequenceClassification"]}, "architectures"),
        ({"attn_logit_softcapping": 30.0}, "attn_logit_softcapping 30"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling"),
        ({"sliding_window": 0}, "sliding_window 0"),
    ],
)
def test_other_networks_are_refused(lib, folder, tmp_path, change, words):
    path = encoder(tmp_path / "odd")
    tiny_models.change_config(path, change)
    refused(EFORMAT, words, lambda: lib.load(path))
