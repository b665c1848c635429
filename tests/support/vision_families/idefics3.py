"""A tiny Idefics 3, and a SmolVLM, which is the same under other names."""

from __future__ import annotations

from typing import Any

from . import DIMS, Family, Random, llama_config

ROWS = [f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)]
MARKS = ("<fake_token_around_image>", "<image>", "<global-img>", *ROWS, "<end_of_utterance>")
PATCH, FACTOR = 4, 2
TILE = {"idefics3": 32, "smolvlm": 34}  # the latter is no multiple of a patch
EYES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
EYES |= {"intermediate_size": 48, "patch_size": PATCH}
IMAGE = {"idefics3": 24, "smolvlm": 34}  # the side that the table of positions is for
PREPROCESSING = {
    "do_image_splitting": True,
    "resample": 1,
    "image_mean": [0.5, 0.4, 0.6],
    "image_std": [0.5, 0.6, 0.4],
    "rescale_factor": 1 / 255,
}


def _family(name: str, head: str) -> Family:
    eyes = {**EYES, "image_size": IMAGE[name]}

    def config(ids: dict[str, int], size: int) -> dict[str, Any]:
        return {
            "model_type": name,
            "image_token_id": ids["<image>"],
            "scale_factor": FACTOR,
            "tie_word_embeddings": not head,
            "text_config": llama_config("llama", size),
            "vision_config": {"model_type": f"{name}_vision", **eyes},
        }

    def weights(draw: Random, size: int) -> None:
        draw.llama("model.text_model.", size, head)
        draw.siglip("model.vision_model.", eyes)
        joined = eyes["hidden_size"] * FACTOR**2
        draw.matrix("model.connector.modality_projection.proj.weight", DIMS, joined)

    return Family(
        name=name,
        marks=MARKS,
        marker="<image>",
        soft="<image>",
        config=config,
        weights=weights,
        preprocessing={
            **PREPROCESSING,
            "size": {"longest_edge": 2 * TILE[name]},
            "max_image_size": {"longest_edge": TILE[name]},
        },
        odd=("vision_config", "patch_size", 10),
        damaged="model.vision_model.post_layernorm.weight",
    )


FAMILIES = (_family("idefics3", "lm_head.weight"), _family("smolvlm", ""))
