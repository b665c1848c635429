"""A tiny Pixtral, as Hugging Face stores it, and a Mistral 3, which merges patches."""

from __future__ import annotations

from typing import Any

from . import DIMS, Family, Random, llama_config

MARKS = ("[IMG]", "[IMG_BREAK]", "[IMG_END]")
PATCH = {"llava": 8, "mistral3": 4}
MERGE = {"llava": 1, "mistral3": 2}
LONGEST = 64
EYES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
EYES |= {"intermediate_size": 48, "image_size": LONGEST}
PREPROCESSING = {
    "size": {"longest_edge": LONGEST},
    "resample": 3,
    "image_mean": [0.5, 0.4, 0.6],
    "image_std": [0.5, 0.6, 0.4],
    "rescale_factor": 1 / 255,
}


def _text(size: int) -> dict[str, Any]:
    """Return the config of the text network, its rotations as transformers 5 stores them."""
    made = {**llama_config("mistral", size), "sliding_window": None}
    del made["rope_theta"]
    return {**made, "rope_parameters": {"rope_type": "default", "rope_theta": 300.0}}


def _family(name: str, parts: tuple[str, str, str], act: str, **others: Any) -> Family:
    """Return one whose files have the names of its table, head and tower so."""
    eyes = {**EYES, "patch_size": PATCH[name]}
    text, head, rest = parts

    def config(ids: dict[str, int], size: int) -> dict[str, Any]:
        return {
            "model_type": name,
            "image_token_index": ids["[IMG]"],
            "vision_feature_layer": -1,
            "projector_hidden_act": "gelu",
            "tie_word_embeddings": False,
            "text_config": _text(size),
            "vision_config": {
                "model_type": "pixtral",
                "hidden_act": act,
                "rope_theta": 10000.0,
                **eyes,
            },
            **others,
        }

    def weights(draw: Random, size: int) -> None:
        draw.llama(text, size, head)
        dims, hidden, patch = (
            eyes[part] for part in ("hidden_size", "intermediate_size", "patch_size")
        )
        tower, projector = f"{rest}vision_tower.", f"{rest}multi_modal_projector."
        draw.matrix(f"{tower}patch_conv.weight", dims, 3, patch, patch)
        draw.vector(f"{tower}ln_pre.weight", dims, 1.0)
        for at in range(eyes["num_hidden_layers"]):
            layer = f"{tower}transformer.layers.{at}."
            for part in ("q", "k", "v", "o"):
                draw.matrix(f"{layer}attention.{part}_proj.weight", dims, dims)
            shapes = {"gate": (hidden, dims), "up": (hidden, dims), "down": (dims, hidden)}
            for part, shape in shapes.items():
                draw.matrix(f"{layer}feed_forward.{part}_proj.weight", *shape)
            for part in ("attention_norm", "ffn_norm"):
                draw.vector(f"{layer}{part}.weight", dims, 1.0)
        if MERGE[name] > 1:
            joined = dims * MERGE[name] ** 2
            draw.vector(f"{projector}norm.weight", dims, 1.0)
            draw.matrix(f"{projector}patch_merger.merging_layer.weight", dims, joined)
            draw.matrix(f"{projector}linear_1.weight", DIMS, dims)
            draw.matrix(f"{projector}linear_2.weight", DIMS, DIMS)
        else:
            draw.linear(f"{projector}linear_1", DIMS, dims)
            draw.linear(f"{projector}linear_2", DIMS, DIMS)

    return Family(
        name=name,
        marks=MARKS,
        marker="[IMG]",
        soft="[IMG]",
        config=config,
        weights=weights,
        preprocessing={
            **PREPROCESSING,
            "patch_size": {"height": PATCH[name], "width": PATCH[name]},
        },
        odd=("vision_config", "num_attention_heads", 5),
        damaged=f"{rest}vision_tower.ln_pre.weight",
    )


FAMILIES = (
    _family(
        "llava",
        ("language_model.model.", "language_model.lm_head.weight", ""),
        "silu",
        vision_feature_select_strategy="full",
    ),
    _family(
        "mistral3",
        ("model.language_model.", "lm_head.weight", "model."),
        "gelu",
        spatial_merge_size=2,
        multimodal_projector_bias=False,
    ),
)
