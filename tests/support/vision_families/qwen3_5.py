"""A tiny Qwen 3.5: Qwen3-VL's tower without Deepstack, and layers with a recurrence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from . import DIMS, MLP, Random, qwen3_vl
from .qwen2_5_vl import HEADS, KEYS, MARKS, NAMES, dense
from .qwen3_vl import OF_EXPERTS, experts

LAYERS, HEAD, INTERVAL = 4, 32, 2
RECURRENT_KEYS, RECURRENT_VALUES, WIDTH, KERNEL = 2, 4, 32, 4
EYES = {**qwen3_vl.EYES, "depth": 2, "deepstack_visual_indexes": []}


def config(ids: dict[str, int], size: int) -> dict[str, Any]:
    """Its ``config.json``."""
    text = {
        "model_type": "qwen3_5_text",
        "hidden_size": DIMS,
        "num_hidden_layers": LAYERS,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "head_dim": HEAD,
        "full_attention_interval": INTERVAL,
        "linear_num_value_heads": RECURRENT_VALUES,
        "linear_num_key_heads": RECURRENT_KEYS,
        "linear_key_head_dim": WIDTH,
        "linear_value_head_dim": WIDTH,
        "linear_conv_kernel_dim": KERNEL,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "mrope_interleaved": True,
            "mrope_section": [3, 3, 2],
        },
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "vocab_size": size,
    }
    return {
        "model_type": "qwen3_5",
        "text_config": text,
        "vision_config": dict(EYES),
        "tie_word_embeddings": False,
        **{name: ids[mark] for name, mark in zip(NAMES, MARKS, strict=True)},
    }


def weights(draw: Random, size: int, mlp: Callable[[Random, str], None] = dense) -> None:
    """Draw its weights; ``mlp`` draws those of a layer's MLP."""
    text = "model.language_model."
    draw.matrix(f"{text}embed_tokens.weight", size, DIMS)
    draw.matrix("lm_head.weight", size, DIMS)
    draw.vector(f"{text}norm.weight", DIMS)
    keys, values = RECURRENT_KEYS * WIDTH, RECURRENT_VALUES * WIDTH
    for at in range(LAYERS):
        layer = f"{text}layers.{at}."
        if (at + 1) % INTERVAL:
            own = f"{layer}linear_attn."
            draw.matrix(f"{own}conv1d.weight", 2 * keys + values, 1, KERNEL)
            draw.vector(f"{own}A_log", RECURRENT_VALUES)
            draw.vector(f"{own}dt_bias", RECURRENT_VALUES)
            draw.vector(f"{own}norm.weight", WIDTH, 1.0)
            draw.bare(f"{own}in_proj_qkv", 2 * keys + values, DIMS)
            draw.bare(f"{own}in_proj_z", values, DIMS)
            for name in ("in_proj_a", "in_proj_b"):
                draw.bare(f"{own}{name}", RECURRENT_VALUES, DIMS)
            draw.bare(f"{own}out_proj", DIMS, values)
        else:
            own = f"{layer}self_attn."
            draw.bare(f"{own}q_proj", 2 * HEADS * HEAD, DIMS)
            draw.bare(f"{own}k_proj", KEYS * HEAD, DIMS)
            draw.bare(f"{own}v_proj", KEYS * HEAD, DIMS)
            draw.bare(f"{own}o_proj", DIMS, HEADS * HEAD)
            for name in ("q_norm", "k_norm"):
                draw.vector(f"{own}{name}.weight", HEAD)
        mlp(draw, f"{layer}mlp.")
        for name in ("input_layernorm", "post_attention_layernorm"):
            draw.vector(f"{layer}{name}.weight", DIMS)
    qwen3_vl.tower_weights(draw, EYES)


def config_of_experts(ids: dict[str, int], size: int) -> dict[str, Any]:
    """The ``config.json`` of the network with experts."""
    made = config(ids, size)
    text = {**made["text_config"], "model_type": "qwen3_5_moe_text", **OF_EXPERTS}
    text["shared_expert_intermediate_size"] = MLP
    return {**made, "model_type": "qwen3_5_moe", "text_config": text}


FAMILY = qwen3_vl.FAMILY._replace(name="qwen3_5", config=config, weights=weights)
EXPERT = FAMILY._replace(
    name="qwen3_5_moe",
    config=config_of_experts,
    weights=partial(weights, mlp=partial(experts, shared=True)),
)
