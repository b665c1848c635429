"""A tiny Qwen3-VL: Deepstack, learned positions, and axes that take turns."""

from __future__ import annotations

from typing import Any

from . import DIMS, MLP, Family, Random
from .qwen2_5_vl import HEAD, HEADS, KEYS, LAYERS, MARKER, MARKS, NAMES, text_weights

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


def weights(draw: Random, size: int) -> None:
    """Draw its weights."""
    text_weights(draw, size, "model.language_model.", "", biased=False)
    tower_weights(draw, EYES)


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
