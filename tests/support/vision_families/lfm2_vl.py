"""A tiny LFM2-VL."""

from __future__ import annotations

from typing import Any

from . import DIMS, MLP, Family, Random

HEADS, KEYS = 2, 1
HEAD = DIMS // HEADS
PATCH, TILE, FACTOR, PLACES = 4, 32, 2, 36
PROJECTED, KERNEL = 48, 3
ROWS = [f"<|img_row_{row}_col_{at}|>" for row in range(1, 5) for at in range(1, 4 // row + 1)]
MARKS = ("<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", *ROWS)
LAYERS = ["conv", "full_attention", "conv"]
EYES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
EYES |= {"intermediate_size": 48, "patch_size": PATCH, "num_patches": PLACES}
PREPROCESSING = {
    "do_resize": False,  # as published folders say, and transformers ignores
    "encoder_patch_size": PATCH,
    "downsample_factor": FACTOR,
    "do_image_splitting": True,
    "min_tiles": 2,
    "max_tiles": 4,
    "tile_size": TILE,
    "min_image_tokens": 4,
    "max_image_tokens": 16,
    "max_pixels_tolerance": 2.0,
    "use_thumbnail": True,
    "resample": 2,
    "image_mean": [0.5, 0.4, 0.6],
    "image_std": [0.5, 0.6, 0.4],
    "rescale_factor": 1 / 255,
}


def config(ids: dict[str, int], size: int) -> dict[str, Any]:
    """Its ``config.json``."""
    return {
        "model_type": "lfm2_vl",
        "image_token_id": ids["<image>"],
        "downsample_factor": FACTOR,
        "projector_hidden_size": PROJECTED,
        "projector_use_layernorm": True,
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "lfm2",
            "hidden_size": DIMS,
            "num_hidden_layers": len(LAYERS),
            "intermediate_size": MLP,
            "block_auto_adjust_ff_dim": False,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KEYS,
            "conv_L_cache": KERNEL,
            "layer_types": LAYERS,
            "rope_theta": 10000.0,
            "norm_eps": 1e-5,
            "max_position_embeddings": 4096,
            "vocab_size": size,
        },
        "vision_config": {"model_type": "siglip2_vision_model", "vision_use_head": False, **EYES},
    }


def weights(draw: Random, size: int) -> None:
    """Draw its weights."""
    text = "model.language_model."
    draw.matrix(f"{text}embed_tokens.weight", size, DIMS)
    draw.vector(f"{text}embedding_norm.weight", DIMS, 1.0)
    for at, kind in enumerate(LAYERS):
        layer = f"{text}layers.{at}."
        if kind == "conv":
            draw.matrix(f"{layer}conv.in_proj.weight", 3 * DIMS, DIMS)
            draw.matrix(f"{layer}conv.conv.weight", DIMS, 1, KERNEL)
            draw.matrix(f"{layer}conv.out_proj.weight", DIMS, DIMS)
        else:
            for name, count in (("q", HEADS), ("k", KEYS), ("v", KEYS)):
                draw.matrix(f"{layer}self_attn.{name}_proj.weight", count * HEAD, DIMS)
            draw.matrix(f"{layer}self_attn.out_proj.weight", DIMS, HEADS * HEAD)
            for name in ("q_layernorm", "k_layernorm"):
                draw.vector(f"{layer}self_attn.{name}.weight", HEAD, 1.0)
        for name, shape in (("w1", (MLP, DIMS)), ("w3", (MLP, DIMS)), ("w2", (DIMS, MLP))):
            draw.matrix(f"{layer}feed_forward.{name}.weight", *shape)
        for name in ("operator_norm", "ffn_norm"):
            draw.vector(f"{layer}{name}.weight", DIMS, 1.0)
    dims, hidden = EYES["hidden_size"], EYES["intermediate_size"]
    tower, projector = "model.vision_tower.vision_model.", "model.multi_modal_projector."
    draw.linear(f"{tower}embeddings.patch_embedding", dims, 3 * PATCH**2)
    draw.matrix(f"{tower}embeddings.position_embedding.weight", PLACES, dims)
    for at in range(EYES["num_hidden_layers"]):
        draw.siglip_layer(f"{tower}encoder.layers.{at}.", dims, hidden)
    draw.norm(f"{tower}post_layernorm", dims)
    draw.norm(f"{projector}layer_norm", dims * FACTOR**2)
    draw.linear(f"{projector}linear_1", PROJECTED, dims * FACTOR**2)
    draw.linear(f"{projector}linear_2", DIMS, PROJECTED)


FAMILY = Family(
    name="lfm2_vl",
    marks=MARKS,
    marker="<image>",
    soft="<image>",
    config=config,
    weights=weights,
    preprocessing=PREPROCESSING,
    odd=("vision_config", "num_patches", 35),
    damaged="model.vision_tower.vision_model.post_layernorm.weight",
)
