"""A tiny Qwen2.5-VL: windows, and positions of three axes in sections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import DIMS, MLP, Family, Random

MARKS = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
MARKER = "".join(MARKS)
NAMES = ("vision_start_token_id", "image_token_id", "vision_end_token_id")
LAYERS, HEADS, KEYS, HEAD = 3, 2, 1, 32
EYES = {
    "depth": 3,
    "hidden_size": 32,
    "hidden_act": "silu",
    "intermediate_size": 48,
    "num_heads": 2,
    "in_chans": 3,
    "out_hidden_size": DIMS,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 16,
    "fullatt_block_indexes": [1],
}
PREPROCESSING = {
    "min_pixels": 16 * 16,
    "max_pixels": 48 * 48,
    "patch_size": 4,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "resample": 3,
    "image_mean": [0.5, 0.4, 0.6],
    "image_std": [0.25, 0.3, 0.2],
}


def config(ids: dict[str, int], size: int) -> dict[str, Any]:
    """Its ``config.json``, with the text's part on top, as older folders have it."""
    return {
        "model_type": "qwen2_5_vl",
        "hidden_size": DIMS,
        "num_hidden_layers": LAYERS,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "vocab_size": size,
        "vision_config": dict(EYES),
        **{name: ids[mark] for name, mark in zip(NAMES, MARKS, strict=True)},
    }


def dense(draw: Random, mlp: str) -> None:
    """Draw the MLP of a layer."""
    for name, shape in (("gate", (MLP, DIMS)), ("up", (MLP, DIMS)), ("down", (DIMS, MLP))):
        draw.bare(f"{mlp}{name}_proj", *shape)


def text_weights(
    draw: Random,
    size: int,
    text: str,
    *,
    biased: bool,
    mlp: Callable[[Random, str], None] = dense,
) -> None:
    """Draw the weights of a text's network; the norms of heads are where biases are not."""
    draw.matrix(f"{text}embed_tokens.weight", size, DIMS)
    draw.matrix("lm_head.weight", size, DIMS)
    draw.vector(f"{text}norm.weight", DIMS, 1.0)
    shapes = {"q": (HEADS * HEAD, DIMS), "k": (KEYS * HEAD, DIMS), "v": (KEYS * HEAD, DIMS)}
    for at in range(LAYERS):
        layer = f"{text}layers.{at}."
        for name, shape in shapes.items():
            kind = draw.linear if biased else draw.bare
            kind(f"{layer}self_attn.{name}_proj", *shape)
        draw.bare(f"{layer}self_attn.o_proj", DIMS, HEADS * HEAD)
        for name in () if biased else ("q_norm", "k_norm"):
            draw.vector(f"{layer}self_attn.{name}.weight", HEAD, 1.0)
        mlp(draw, f"{layer}mlp.")
        for name in ("input_layernorm", "post_attention_layernorm"):
            draw.vector(f"{layer}{name}.weight", DIMS, 1.0)


def weights(draw: Random, size: int) -> None:
    """Draw its weights."""
    text_weights(draw, size, "model.", biased=True)
    dims, hidden = EYES["hidden_size"], EYES["intermediate_size"]
    draw.matrix("visual.patch_embed.proj.weight", dims, 3, 2, 4, 4)
    for at in range(EYES["depth"]):
        layer = f"visual.blocks.{at}."
        draw.linear(f"{layer}attn.qkv", 3 * dims, dims)
        draw.linear(f"{layer}attn.proj", dims, dims)
        for name, shape in (("gate", (hidden, dims)), ("up", (hidden, dims))):
            draw.linear(f"{layer}mlp.{name}_proj", *shape)
        draw.linear(f"{layer}mlp.down_proj", dims, hidden)
        for name in ("norm1", "norm2"):
            draw.vector(f"{layer}{name}.weight", dims, 1.0)
    draw.vector("visual.merger.ln_q.weight", dims, 1.0)
    draw.linear("visual.merger.mlp.0", 4 * dims, 4 * dims)
    draw.linear("visual.merger.mlp.2", DIMS, 4 * dims)


FAMILY = Family(
    name="qwen2_5_vl",
    marks=MARKS,
    marker=MARKER,
    soft=MARKS[1],
    config=config,
    weights=weights,
    preprocessing=PREPROCESSING,
    odd=("vision_config", "num_heads", 5),
    damaged="visual.blocks.1.norm2.weight",
)
