"""A tiny Qwen2-VL: Qwen2.5-VL without windows, with layer norms."""

from __future__ import annotations

from typing import Any

from . import DIMS, Random, qwen2_5_vl

EYES = {
    "depth": 2,
    "embed_dim": 32,
    "hidden_size": DIMS,
    "mlp_ratio": 2,
    "num_heads": 2,
    "in_chans": 3,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}


def config(ids: dict[str, int], size: int) -> dict[str, Any]:
    """Its ``config.json``."""
    return {
        **qwen2_5_vl.config(ids, size),
        "model_type": "qwen2_vl",
        "vision_config": dict(EYES),
    }


def weights(draw: Random, size: int) -> None:
    """Draw its weights."""
    qwen2_5_vl.text_weights(draw, size, "model.", biased=True)
    dims = EYES["embed_dim"]
    draw.matrix("visual.patch_embed.proj.weight", dims, 3, 2, 4, 4)
    for at in range(EYES["depth"]):
        layer = f"visual.blocks.{at}."
        draw.linear(f"{layer}attn.qkv", 3 * dims, dims)
        draw.linear(f"{layer}attn.proj", dims, dims)
        draw.linear(f"{layer}mlp.fc1", 2 * dims, dims)
        draw.linear(f"{layer}mlp.fc2", dims, 2 * dims)
        for name in ("norm1", "norm2"):
            draw.norm(f"{layer}{name}", dims)
    draw.norm("visual.merger.ln_q", dims)
    draw.linear("visual.merger.mlp.0", 4 * dims, 4 * dims)
    draw.linear("visual.merger.mlp.2", DIMS, 4 * dims)


FAMILY = qwen2_5_vl.FAMILY._replace(
    name="qwen2_vl",
    config=config,
    weights=weights,
    odd=("vision_config", "spatial_merge_size", 0),
)
