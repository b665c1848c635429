"""Tiny random models that see, on disk, in the format of real ones."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

from . import tokenizers

MARKS = ("<start_of_image>", "<image_soft_token>", "<end_of_image>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}<start_of_image>"
    "{% elif item['type'] == 'text' %}{{ item['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIDE, PATCH, POSITIONS, WINDOW = 32, 4, 16, 8
DIMS, HEADS, KEYS, HEAD, MLP, LAYERS = 64, 4, 2, 16, 96, 4
EYES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
EYES |= {"intermediate_size": 48, "patch_size": PATCH, "image_size": SIDE}
PREPROCESSING = {
    "size": {"height": SIDE, "width": SIDE},
    "resample": 2,
    "image_mean": [0.5, 0.4, 0.6],
    "image_std": [0.5, 0.6, 0.4],
    "rescale_factor": 1 / 255,
}


def tokenizer() -> tuple[str, dict[str, Any], int]:
    """Return tokenizer.json, tokenizer_config.json and the number of tokens."""
    from tokenizers import AddedToken, Tokenizer

    text, settings = tokenizers.build("bpe")
    made = Tokenizer.from_str(text)
    made.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    return made.to_str(), json.loads(settings) | {"chat_template": TEMPLATE}, made.get_vocab_size()


def config(size: int) -> dict[str, Any]:
    """The config of a Gemma 3 whose vocabulary ends with the marks of images."""
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
    marks = ("boi_token_index", "image_token_index", "eoi_token_index")
    return {
        "model_type": "gemma3",
        "text_config": text,
        "vision_config": {"model_type": "siglip_vision_model", **EYES},
        "vocab_size": size,
        "mm_tokens_per_image": POSITIONS,
        **{name: size - len(marks) + at for at, name in enumerate(marks)},
    }


def weights(size: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights under the names that files have."""
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {}

    def matrix(name: str, *shape: int) -> None:
        spread = 1 / np.sqrt(np.prod(shape[1:]))
        made[name] = rng.normal(0, spread, shape).astype(np.float32)

    def vector(name: str, count: int, mean: float = 0.0) -> None:
        made[name] = rng.normal(mean, 0.1, count).astype(np.float32)

    text = "language_model.model."
    matrix(f"{text}embed_tokens.weight", size, DIMS)
    vector(f"{text}norm.weight", DIMS)
    shapes = {"q": (HEADS * HEAD, DIMS), "k": (KEYS * HEAD, DIMS), "v": (KEYS * HEAD, DIMS)}
    shapes["o"] = (DIMS, HEADS * HEAD)
    norms = ("input_layernorm", "post_attention_layernorm")
    norms += ("pre_feedforward_layernorm", "post_feedforward_layernorm")
    for at in range(LAYERS):
        layer = f"{text}layers.{at}."
        for name, shape in shapes.items():
            matrix(f"{layer}self_attn.{name}_proj.weight", *shape)
        for name in ("q_norm", "k_norm"):
            vector(f"{layer}self_attn.{name}.weight", HEAD)
        for name, shape in (("gate", (MLP, DIMS)), ("up", (MLP, DIMS)), ("down", (DIMS, MLP))):
            matrix(f"{layer}mlp.{name}_proj.weight", *shape)
        for name in norms:
            vector(f"{layer}{name}.weight", DIMS)
    dims, hidden = EYES["hidden_size"], EYES["intermediate_size"]
    tower = "vision_tower.vision_model."
    matrix(f"{tower}embeddings.patch_embedding.weight", dims, 3, PATCH, PATCH)
    vector(f"{tower}embeddings.patch_embedding.bias", dims)
    matrix(f"{tower}embeddings.position_embedding.weight", (SIDE // PATCH) ** 2, dims)
    for at in range(EYES["num_hidden_layers"]):
        layer = f"{tower}encoder.layers.{at}."
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            matrix(f"{layer}self_attn.{name}.weight", dims, dims)
            vector(f"{layer}self_attn.{name}.bias", dims)
        for name, shape in (("fc1", (hidden, dims)), ("fc2", (dims, hidden))):
            matrix(f"{layer}mlp.{name}.weight", *shape)
            vector(f"{layer}mlp.{name}.bias", shape[0])
        for name in ("layer_norm1", "layer_norm2"):
            vector(f"{layer}{name}.weight", dims, 1.0)
            vector(f"{layer}{name}.bias", dims)
    vector(f"{tower}post_layernorm.weight", dims, 1.0)
    vector(f"{tower}post_layernorm.bias", dims)
    matrix("multi_modal_projector.mm_input_projection_weight", dims, DIMS)
    vector("multi_modal_projector.mm_soft_emb_norm.weight", dims)
    return made


def make(folder: pathlib.Path, seed: int = 0) -> pathlib.Path:
    """Write a tiny Gemma 3 into a folder, which is made if need be, and return it."""
    import mlx.core as mx

    folder.mkdir(parents=True, exist_ok=True)
    text, settings, size = tokenizer()
    (folder / "tokenizer.json").write_text(text)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps(config(size)))
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSING))
    arrays = {name: mx.array(array) for name, array in weights(size, seed).items()}
    mx.save_safetensors(str(folder / "model.safetensors"), arrays, {"format": "pt"})
    return folder
