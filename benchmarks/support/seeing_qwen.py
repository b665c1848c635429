"""A random Qwen2.5-VL: its tower is as wide as the 3B model's, with few layers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.support.models import vocabulary

MARKS = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
TOWER = {
    "depth": 4,
    "hidden_size": 1280,
    "num_heads": 16,
    "intermediate_size": 3420,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 112,
    "fullatt_block_indexes": [3],
    "out_hidden_size": 640,
    "hidden_act": "silu",
}
TEXT: dict[str, Any] = {
    "hidden_size": 640,
    "num_hidden_layers": 6,
    "intermediate_size": 2048,
    "num_attention_heads": 10,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},
    "vocab_size": 8192,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
TEMPLATE = (
    "{% for message in messages %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}" + "".join(MARKS) + "{% endif %}{% endfor %}{% endfor %}"
)


def qwen_seer(folder: Path) -> Path:
    """Return the model's folder within one, made on first use."""
    place = folder / "seer-qwen"
    if not (place / "finished").exists():
        # mlx stays out of this process, which starts others.
        subprocess.run([sys.executable, "-m", __spec__.name, str(place)], check=True)
        (place / "finished").touch()
    return place


def _shapes() -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by Hugging Face's names."""
    dims, mlp = TEXT["hidden_size"], TEXT["intermediate_size"]
    keys = dims // TEXT["num_attention_heads"] * TEXT["num_key_value_heads"]
    made: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (TEXT["vocab_size"], dims),
        "model.norm.weight": (dims,),
    }
    for at in range(TEXT["num_hidden_layers"]):
        layer = f"model.layers.{at}."
        for name, rows in (("q", dims), ("k", keys), ("v", keys)):
            made[f"{layer}self_attn.{name}_proj.weight"] = (rows, dims)
            made[f"{layer}self_attn.{name}_proj.bias"] = (rows,)
        made[f"{layer}self_attn.o_proj.weight"] = (dims, dims)
        made |= {f"{layer}mlp.{name}_proj.weight": (mlp, dims) for name in ("gate", "up")}
        made[f"{layer}mlp.down_proj.weight"] = (dims, mlp)
        for name in ("input_layernorm", "post_attention_layernorm"):
            made[f"{layer}{name}.weight"] = (dims,)
    return made | _tower_shapes()


def _tower_shapes() -> dict[str, tuple[int, ...]]:
    own: dict[str, Any] = TOWER
    width, mlp, patch = own["hidden_size"], own["intermediate_size"], own["patch_size"]
    square = width * own["spatial_merge_size"] ** 2
    frames = own["temporal_patch_size"]
    made: dict[str, tuple[int, ...]] = {
        "visual.patch_embed.proj.weight": (width, 3, frames, patch, patch),
        "visual.merger.ln_q.weight": (width,),
    }
    linear = {"visual.merger.mlp.0": (square, square)}
    linear["visual.merger.mlp.2"] = own["out_hidden_size"], square
    for at in range(own["depth"]):
        layer = f"visual.blocks.{at}."
        made |= {f"{layer}norm{number}.weight": (width,) for number in (1, 2)}
        linear |= {f"{layer}attn.qkv": (3 * width, width), f"{layer}attn.proj": (width, width)}
        linear |= {f"{layer}mlp.{name}_proj": (mlp, width) for name in ("gate", "up")}
        linear[f"{layer}mlp.down_proj"] = width, mlp
    for name, shape in linear.items():
        made |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return made


def _make(place: Path) -> None:
    import mlx.core as mx
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    place.mkdir(parents=True, exist_ok=True)
    mx.random.seed(6)
    weights = {}
    for name, shape in _shapes().items():
        is_norm = len(shape) == 1 and not name.endswith("bias")
        weights[name] = (mx.random.normal(shape) * 0.02 + is_norm).astype(mx.bfloat16)
    mx.save_safetensors(str(place / "model.safetensors"), weights, {"format": "pt"})
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary(TEXT["vocab_size"] - 3), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(m, special=True, normalized=False) for m in MARKS])
    tokenizer.save(str(place / "tokenizer.json"))
    names = ("vision_start_token_id", "image_token_id", "vision_end_token_id")
    ids = {name: TEXT["vocab_size"] - len(MARKS) + at for at, name in enumerate(names)}
    config = {"model_type": "qwen2_5_vl", **TEXT, **ids, "vision_config": TOWER}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    for file, contents in (("config", config), ("tokenizer_config", settings)):
        (place / f"{file}.json").write_text(json.dumps(contents, indent=1))


if __name__ == "__main__":
    _make(Path(sys.argv[1]))
