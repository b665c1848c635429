"""A tiny Gemma 3."""

from __future__ import annotations

from typing import Any

from . import DIMS, HEAD, HEADS, KEYS, MLP, Family, Random

MARKS = ("<start_of_image>", "<image_soft_token>", "<end_of_image>")
SIDE, PATCH, POSITIONS, WINDOW, LAYERS = 32, 4, 16, 8, 4
EYES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
EYES |= {"intermediate_size": 48, "patch_size": PATCH, "image_size": SIDE}
PREPROCESSING = {
    "size": {"height": SIDE, "width": SIDE},
    "resample": 2,
    "image_mean": [0.5, 0.4, 0.6],
    "image_std": [0.5, 0.6, 0.4],
    "rescale_factor": 1 / 255,
}


def config(ids: dict[str, int], size: int) -> dict[str, Any]:
    """Its ``config.json``."""
    text = {
        "model_type": "gemma3_text",
        "hidden_size": DIMS,
        "num_hidden_layers": LAYERS,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "head_dim": HEAD,
        "query_pre_attn_scalar": HEAD,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "sliding_window": WINDOW,
        "sliding_window_pattern": 2,
        "max_position_embeddings": 512,
        "vocab_size": size,
    }
    names = ("boi_token_index", "image_token_index", "eoi_token_index")
    return {
        "model_type": "gemma3",
        "text_config": text,
        "vision_config": {"model_type": "siglip_vision_model", **EYES},
        "vocab_size": size,
        "mm_tokens_per_image": POSITIONS,
        **{name: ids[mark] for name, mark in zip(names, MARKS, strict=True)},
    }


def weights(draw: Random, size: int) -> None:
    """Draw its weights."""
    text = "language_model.model."
    draw.matrix(f"{text}embed_tokens.weight", size, DIMS)
    draw.vector(f"{text}norm.weight", DIMS)
    shapes = {"q": (HEADS * HEAD, DIMS), "k": (KEYS * HEAD, DIMS), "v": (KEYS * HEAD, DIMS)}
    shapes["o"] = (DIMS, HEADS * HEAD)
    norms = ("input_layernorm", "post_attention_layernorm")
    norms += ("pre_feedforward_layernorm", "post_feedforward_layernorm")
    for at in range(LAYERS):
        layer = f"{text}layers.{at}."
        for name, shape in shapes.items():
            draw.matrix(f"{layer}self_attn.{name}_proj.weight", *shape)
        for name in ("q_norm", "k_norm"):
            draw.vector(f"{layer}self_attn.{name}.weight", HEAD)
        for name, shape in (("gate", (MLP, DIMS)), ("up", (MLP, DIMS)), ("down", (DIMS, MLP))):
            draw.matrix(f"{layer}mlp.{name}_proj.weight", *shape)
        for name in norms:
            draw.vector(f"{layer}{name}.weight", DIMS)
    draw.siglip("vision_tower.vision_model.", EYES)
    dims = EYES["hidden_size"]
    draw.matrix("multi_modal_projector.mm_input_projection_weight", dims, DIMS)
    draw.vector("multi_modal_projector.mm_soft_emb_norm.weight", dims)


FAMILY = Family(
    name="gemma3",
    marks=MARKS,
    marker=MARKS[0],
    soft=MARKS[1],
    config=config,
    weights=weights,
    preprocessing=PREPROCESSING,
    odd=("vision_config", "patch_size", 5),
    damaged="vision_tower.vision_model.post_layernorm.weight",
)
