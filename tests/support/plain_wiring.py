"""What a wiring's JSON means, in float64 and without a state; knows nothing of cowmlx."""

from __future__ import annotations

import json
from math import erf
from pathlib import Path
from typing import Any

import numpy as np

from support import recurrences


def stored(folder: Path) -> dict[str, Any]:
    """The weights of a folder in float64; quantized ones are dequantized."""
    import mlx.core as mx

    how = json.loads((folder / "config.json").read_text()).get("quantization")
    weights = mx.load(str(folder / "model.safetensors"))
    found = {}
    for name, array in weights.items():
        base, _, leaf = name.rpartition(".")
        if leaf in ("scales", "biases"):
            continue
        if f"{base}.scales" in weights and leaf == "weight":
            scales = (weights[f"{base}.scales"], weights[f"{base}.biases"])
            array = mx.dequantize(array, *scales, group_size=how["group_size"], bits=how["bits"])
        found[name] = np.asarray(array.astype(mx.float32), np.float64)
    return found


def greedy(wiring: Any, weights: dict[str, Any], tokens: list[int], count: int) -> list[int]:
    """The next ``count`` greedy tokens."""
    held = list(tokens)
    for _ in range(count):
        held.append(int(logits(wiring, weights, held)[-1].argmax()))
    return held[len(tokens) :]


def logits(wiring: Any, weights: dict[str, Any], tokens: list[int]) -> Any:
    """What the output block gives for tokens: (T, V)."""
    blocks = {block["name"]: block for block in wiring["blocks"]}
    names = list(blocks)
    values: dict[str, Any] = {}

    def value(name: str) -> Any:
        if name not in values:
            column = [row[names.index(name)] for row in wiring["adjacency"]]
            x = sum(sign * value(names[at]) for at, sign in enumerate(column) if sign)
            own = Weights(weights, f"blocks.{name}.")
            parameters = blocks[name].get("parameters", {})
            if blocks[name]["type"] == "embedding":
                values[name] = own["table.weight"][np.asarray(tokens)]
            elif "embedding" in parameters and parameters["embedding"] is not None:
                values[name] = x @ weights[f"blocks.{parameters['embedding']}.table.weight"].T
            else:
                values[name] = BLOCKS[blocks[name]["type"]](own, x, **parameters)
        return values[name]

    return value(wiring["output"])


class Weights:
    """The weights of a block, by what comes behind its name."""

    def __init__(self, weights: dict[str, Any], prefix: str) -> None:
        self.weights = weights
        self.prefix = prefix

    def __getitem__(self, name: str) -> Any:
        return self.weights[self.prefix + name]

    def linear(self, name: str, x: Any) -> Any:
        """A linear layer, with the bias that is stored, if one is."""
        bias = self.weights.get(f"{self.prefix}{name}.bias", 0)
        return x @ self[f"{name}.weight"].T + bias


def normed(x: Any, eps: float, *, centred: bool = False) -> Any:
    """Vectors divided by the root of their mean square, or centred by the deviation."""
    x = x - x.mean(axis=-1, keepdims=True) if centred else x
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)


def silu(x: Any) -> Any:
    return x * recurrences.sigmoid(x)


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))


def attention(
    w: Weights, x: Any, *, dims: int, num_heads: int, num_kv_heads: int, window: Any = None
) -> Any:
    """Rotary positions of base 10000, halves rotated."""
    length, size = len(x), dims // num_heads
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(size // 2) / (size // 2))

    def heads(name: str, count: int, rotated: bool) -> Any:
        y = w.linear(f"self_attn.{name}", x).reshape(length, count, size).swapaxes(0, 1)
        if rotated:
            a, b = np.split(y, 2, axis=-1)
            cos, sin = np.cos(angles), np.sin(angles)
            y = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
        return np.repeat(y, num_heads // count, axis=0)

    q = heads("q_proj", num_heads, True)
    k, v = heads("k_proj", num_kv_heads, True), heads("v_proj", num_kv_heads, False)
    scores = q @ k.swapaxes(1, 2) / np.sqrt(size)
    far = np.arange(length)[:, None] - np.arange(length)
    scores = np.where((far >= 0) & (far < (window or length)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return w.linear("self_attn.o_proj", (weights @ v).swapaxes(0, 1).reshape(length, -1))


def mlstm(
    w: Weights,
    x: Any,
    *,
    dims: int,
    num_heads: int,
    qk_dims: int,
    v_dims: int,
    hidden_dims: int,
    chunk_size: int,
    gate_soft_cap: float | None = 15.0,
    norm_eps: float = 1e-6,
    eps: float = 1e-6,
) -> Any:
    """As arXiv 2503.13427 has it; biases where they are stored."""
    y = normed(x, norm_eps) * w["norm_mlstm.weight"]

    def heads(name: str) -> Any:
        split = w.linear(f"mlstm_layer.{name}", y).reshape(len(y), num_heads, -1)
        return split.swapaxes(0, 1)[None]

    def gate(name: str) -> Any:
        gates = w.linear(f"mlstm_layer.{name}", y).T[None]
        if gate_soft_cap is None:
            return gates
        return gate_soft_cap * np.tanh(gates / gate_soft_cap)

    q, k, v = heads("q"), heads("k"), heads("v")
    zeros = np.zeros((1, num_heads, q.shape[-1], v.shape[-1]))
    state = (zeros, zeros[..., 0], np.zeros((1, num_heads, 1)))
    gates = gate("igate_preact"), gate("fgate_preact")
    hidden, _ = recurrences.mlstm(q, k, v, *gates, state, eps)
    hidden = normed(hidden[0].swapaxes(0, 1), norm_eps, centred=True).reshape(len(x), -1)
    hidden = hidden * w["mlstm_layer.multihead_norm.weight"]
    gated = recurrences.sigmoid(w.linear("mlstm_layer.ogate_preact", y)) * hidden
    x = x + w.linear("mlstm_layer.out_proj", gated)
    y = normed(x, norm_eps) * w["norm_ffn.weight"]
    gated = silu(w.linear("ffn.proj_up_gate", y)) * w.linear("ffn.proj_up", y)
    return x + w.linear("ffn.proj_down", gated)


def slstm(
    w: Weights,
    x: Any,
    *,
    dims: int,
    num_heads: int,
    hidden_dims: int,
    conv_kernel: int | None = 4,
    norm_eps: float = 1e-6,
) -> Any:
    """As arXiv 2405.04517, figure 10, has it, with a norm per head."""
    length = len(x)
    y = gated = normed(x, norm_eps) * w["norm_slstm.weight"]
    if conv_kernel is not None:
        before = np.pad(y, ((conv_kernel - 1, 0), (0, 0)))
        kernel = w["slstm_layer.conv.weight"]
        gated = sum(before[at : at + length] * kernel[:, at] for at in range(conv_kernel))
        gated = silu(gated + w["slstm_layer.conv.bias"])
    i, f = np.split(w.linear("slstm_layer.if_preact", gated), 2, axis=-1)
    z, o = np.split(w.linear("slstm_layer.zo_preact", y), 2, axis=-1)
    shape = (1, length, num_heads, dims // num_heads)
    gates = {name: part.reshape(shape) for name, part in zip("ifzo", (i, f, z, o), strict=True)}
    matrices = np.split(w["slstm_layer.recurrent"], 4, axis=1)
    hidden = recurrences.slstm(gates, dict(zip("ifzo", matrices, strict=True)), length)[0]
    hidden = normed(hidden, norm_eps, centred=True).reshape(length, dims)
    x = x + hidden * w["slstm_layer.norm_weight"]
    y = normed(x, norm_eps) * w["norm_ffn.weight"]
    gated = gelu(w.linear("ffn.proj_up_gate", y)) * w.linear("ffn.proj_up", y)
    return x + w.linear("ffn.proj_down", gated)


def swiglu(w: Weights, x: Any, *, dims: int, hidden_dims: int) -> Any:
    return w.linear("down_proj", silu(w.linear("gate_proj", x)) * w.linear("up_proj", x))


BLOCKS: dict[str, Any] = {
    "attention": attention,
    "identity": lambda w, x, dims: x,
    "layer_norm": lambda w, x, dims: (
        normed(x, 1e-5, centred=True) * w["norm.weight"] + w["norm.bias"]
    ),
    "lm_head": lambda w, x, dims, num_embeddings: w.linear("linear", x),
    "mlstm": mlstm,
    "rms_norm": lambda w, x, dims: normed(x, 1e-5) * w["weight"],
    "slstm": slstm,
    "swiglu": swiglu,
}
