"""A tiny Qwen3-VL: Deepstack, learned positions, and axes that take turns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from . import DIMS, MLP, Family, Random
from .qwen2_5_vl import HEAD, HEADS, KEYS, LAYERS, MARKER, MARKS, NAMES, dense, text_weights

EXPERTS, MOE = 4, 32
OF_EXPERTS = {"num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": MOE}
EYES = {
    "depth": 3,
    "hidden_size": 32,
    "hidden_act": "gelu_pytorch_tanh",
    "intermediate_size": 48,
    "num_heads": 2,
    "in_channels": 3,
    "out_hidden_size": DIMS,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "num_position_embeddings": 49,
    "deepstack_visual_indexes": [0, 2],
}
PREPROCESSING = {
    "size": {"shortest_edge": 16 * 16, "longest_edge": 48 * 48},
    "patch_size": 4,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "resample": 3,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


def config(ids: dict[str, int], size: int) -> dict[str, Any]:
    """Its ``config.json``."""
    text = {
        "model_type": "qwen3_vl_text",
        "hidden_size": DIMS,
        "num_hidden_layers": LAYERS,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "head_dim": HEAD,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "rope_type": "default",
            "mrope_interleaved": True,
            "mrope_section": [6, 5, 5],
        },
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "vocab_size": size,
    }
    return {
        "model_type": "qwen3_vl",
        "text_config": text,
        "vision_config": dict(EYES),
        "tie_word_embeddings": False,
        **{name: ids[mark] for name, mark in zip(NAMES, MARKS, strict=True)},
    }


def tower_weights(draw: Random, eyes: dict[str, Any]) -> None:
    """Draw the weights of a tower."""
    dims, hidden = eyes["hidden_size"], eyes["intermediate_size"]
    tower = "model.visual."
    draw.linear(f"{tower}patch_embed.proj", dims, 3, 2, 4, 4)
    draw.matrix(f"{tower}pos_embed.weight", eyes["num_position_embeddings"], dims)
    for at in range(eyes["depth"]):
        layer = f"{tower}blocks.{at}."
        draw.linear(f"{layer}attn.qkv", 3 * dims, dims)
        draw.linear(f"{layer}attn.proj", dims, dims)
        draw.linear(f"{layer}mlp.linear_fc1", hidden, dims)
        draw.linear(f"{layer}mlp.linear_fc2", dims, hidden)
        for name in ("norm1", "norm2"):
            draw.norm(f"{layer}{name}", dims)
    stacked = eyes.get("deepstack_visual_indexes", [])
    mergers = [f"{tower}deepstack_merger_list.{at}." for at in range(len(stacked))]
    for merger in (f"{tower}merger.", *mergers):
        draw.norm(f"{merger}norm", dims if merger == f"{tower}merger." else 4 * dims)
        draw.linear(f"{merger}linear_fc1", 4 * dims, 4 * dims)
        draw.linear(f"{merger}linear_fc2", DIMS, 4 * dims)


def experts(draw: Random, mlp: str, *, shared: bool, turned: bool = False) -> None:
    """Draw experts; ``turned``: as Qwen3-VL has them, inputs first."""
    draw.bare(f"{mlp}gate", EXPERTS, DIMS)
    up, down = (2 * MOE, DIMS), (DIMS, MOE)
    for name, shape in (("gate_up", up), ("down", down)):
        key = f"{mlp}experts.{name}_proj"
        draw.matrix(key, EXPERTS, *(shape[::-1] if turned else shape))
        draw.made[key] *= shape[0] ** 0.5
    if shared:
        dense(draw, f"{mlp}shared_expert.")
        draw.bare(f"{mlp}shared_expert_gate", 1, DIMS)


def weights(draw: Random, size: int, mlp: Callable[[Random, str], None] = dense) -> None:
    """Draw its weights; ``mlp`` draws those of a layer's MLP."""
    text_weights(draw, size, "model.language_model.", biased=False, mlp=mlp)
    tower_weights(draw, EYES)


def config_of_experts(ids: dict[str, int], size: int) -> dict[str, Any]:
    """The ``config.json`` of the network with experts."""
    made = config(ids, size)
    text = {**made["text_config"], "model_type": "qwen3_vl_moe_text", **OF_EXPERTS}
    text |= {"decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True}
    return {**made, "model_type": "qwen3_vl_moe", "text_config": text}


FAMILY = Family(
    name="qwen3_vl",
    marks=MARKS,
    marker=MARKER,
    soft=MARKS[1],
    config=config,
    weights=weights,
    preprocessing=PREPROCESSING,
    odd=("vision_config", "num_position_embeddings", 50),
    damaged="model.visual.blocks.1.norm2.weight",
)
EXPERT = FAMILY._replace(
    name="qwen3_vl_moe",
    config=config_of_experts,
    weights=partial(weights, mlp=partial(experts, shared=False, turned=True)),
)
