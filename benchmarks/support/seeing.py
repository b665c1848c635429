"""A random Gemma 3 that sees, in both forms: its tower is SigLIP-400M's with few layers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.models import vocabulary

MARKS = ("<start_of_image>", "<image_soft_token>", "<end_of_image>")
LAYERS = 4
SMALL = 224  # pixels of a side
TOWER = {
    "hidden_size": 1152,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 16,
    "intermediate_size": 4304,
    "patch_size": 14,
    "image_size": 896,
}
TEXT = {
    "model_type": "gemma3_text",
    "hidden_size": 640,
    "num_hidden_layers": 6,
    "intermediate_size": 2048,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
    "vocab_size": 8192,
    "max_position_embeddings": 8192,
}
TEMPLATE = (
    "{% for message in messages %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}<start_of_image>{% endif %}{% endfor %}{% endfor %}"
)
# GGUF's names of a layer's weights.
TEXT_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOWER_LAYER = {
    "layer_norm1": "ln1",
    "layer_norm2": "ln2",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}
PATCHES = "vision_tower.vision_model.embeddings.patch_embedding"
PLACES = "vision_tower.vision_model.embeddings.position_embedding.weight"
LAST = "vision_tower.vision_model.post_layernorm"
PROJECTOR = "multi_modal_projector.mm_"


@dataclass(frozen=True)
class Seer:
    """Both forms of the model, and the tokens around an image.

    Attributes:
        mlx: a folder.
        text: the text's network, a GGUF file; None: that form is missing.
        tower: the tower, another one.
        before: tokens before an image.
        behind: tokens behind it.
    """

    mlx: Path
    text: Path | None
    tower: Path | None
    before: list[int]
    behind: list[int]


def seer(folder: Path, gguf_package: Path) -> Seer:
    """Return both forms, made on first use.

    Args:
        folder: of both.
        gguf_package: the folder that holds llama.cpp's own `gguf` package.
    """
    text, tower = folder / "seer.gguf", folder / "seer-tower.gguf"
    if not tower.exists():
        # mlx stays out of this process, which starts others.
        command = [sys.executable, "-m", __spec__.name, folder, gguf_package]
        subprocess.run([str(part) for part in command], check=True)
    return Seer(folder / "seer", text, tower, *_around())


def small_seer(folder: Path) -> Seer:
    """Return one whose tower takes SMALL x SMALL pixels, as a folder alone, made on first use."""
    place = folder / "small-seer"
    if not (place / "finished").exists():
        command = [sys.executable, "-m", __spec__.name, str(folder)]
        subprocess.run(command, check=True)
        (place / "finished").touch()
    return Seer(place, None, None, *_around())


def _around() -> tuple[list[int], list[int]]:
    """Return the tokens before an image, and those behind it."""
    first, _, last = _marks()
    line = vocabulary(TEXT["vocab_size"])["Ċ"]  # type: ignore[arg-type]
    return [line, line, first], [last, line, line]


def _marks() -> list[int]:
    size: int = TEXT["vocab_size"]  # type: ignore[assignment]
    return [size - len(MARKS) + at for at in range(len(MARKS))]


def _make_folder(place: Path, side: int) -> dict[str, Any]:
    """Write the folder of one whose tower takes side x side pixels, and return its weights."""
    import mlx.core as mx

    place.mkdir(parents=True, exist_ok=True)
    mx.random.seed(5)
    weights = {name: _drawn(name, shape) for name, shape in _shapes(side).items()}
    mx.save_safetensors(str(place / "model.safetensors"), weights, {"format": "pt"})
    _write_texts(place, side)
    return weights


def _make(folder: Path, gguf_package: Path) -> None:
    weights = _make_folder(folder / "seer", TOWER["image_size"])
    sys.path.insert(0, str(gguf_package))
    _write_text(folder / "seer.gguf", weights)
    unfinished = folder / "seer-tower.unfinished"
    _write_tower(unfinished, weights)
    unfinished.rename(folder / "seer-tower.gguf")


def _shapes(side: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by Hugging Face's names."""
    text: dict[str, Any] = TEXT
    dims, mlp, head = text["hidden_size"], text["intermediate_size"], text["head_dim"]
    heads, keys = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    of_text = {
        **{name: (dims,) for name in TEXT_LAYER if name.endswith("layernorm")},
        **{name: (head,) for name in TEXT_LAYER if name.endswith("_norm")},
        **{"self_attn.q_proj": (heads, dims), "self_attn.o_proj": (dims, heads)},
        **{"self_attn.k_proj": (keys, dims), "self_attn.v_proj": (keys, dims)},
        **{"mlp.gate_proj": (mlp, dims), "mlp.up_proj": (mlp, dims), "mlp.down_proj": (dims, mlp)},
    }
    made: dict[str, tuple[int, ...]] = {
        "language_model.model.embed_tokens.weight": (text["vocab_size"], dims),
        "language_model.model.norm.weight": (dims,),
    }
    for layer in range(text["num_hidden_layers"]):
        for name, shape in of_text.items():
            made[f"language_model.model.layers.{layer}.{name}.weight"] = shape
    width, inner, patch = TOWER["hidden_size"], TOWER["intermediate_size"], TOWER["patch_size"]
    for layer in range(TOWER["num_hidden_layers"]):
        for name in TOWER_LAYER:
            whole = f"vision_tower.vision_model.encoder.layers.{layer}.{name}"
            rows, columns = width, width
            rows = inner if name.endswith("fc1") else rows
            columns = inner if name.endswith("fc2") else columns
            made[f"{whole}.weight"] = (width,) if "norm" in name else (rows, columns)
            made[f"{whole}.bias"] = (rows,)
    made |= {f"{PATCHES}.weight": (width, 3, patch, patch), f"{PATCHES}.bias": (width,)}
    made |= {
        PLACES: ((side // patch) ** 2, width),
        f"{LAST}.weight": (width,),
        f"{LAST}.bias": (width,),
    }
    made[f"{PROJECTOR}input_projection_weight"] = (width, dims)
    made[f"{PROJECTOR}soft_emb_norm.weight"] = (width,)
    return made


def _drawn(name: str, shape: tuple[int, ...]) -> Any:
    import mlx.core as mx

    own = mx.random.normal(shape) * 0.02
    if "vision_tower" in name and "norm" in name and name.endswith("weight"):
        own = own + 1
    return own.astype(mx.bfloat16)


def _write_texts(place: Path, side: int) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    known = vocabulary(TEXT["vocab_size"] - len(MARKS))  # type: ignore[operator]
    tokenizer = Tokenizer(models.BPE(vocab=known, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(m, special=True, normalized=False) for m in MARKS])
    tokenizer.save(str(place / "tokenizer.json"))
    first, soft, last = _marks()
    config = {
        "model_type": "gemma3",
        "text_config": TEXT,
        "vocab_size": TEXT["vocab_size"],
        "vision_config": {"model_type": "siglip_vision_model", **TOWER, "image_size": side},
        "hidden_size": TEXT["hidden_size"],  # mlx-vlm reads it here
        "mm_tokens_per_image": 256,
        "boi_token_index": first,
        "image_token_index": soft,
        "eoi_token_index": last,
        "torch_dtype": "bfloat16",
    }
    preprocessing = {
        "size": {"height": side, "width": side},
        "resample": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    files = {"config": config, "preprocessor_config": preprocessing, "tokenizer_config": settings}
    for file, contents in files.items():
        (place / f"{file}.json").write_text(json.dumps(contents, indent=1))


def _write_text(path: Path, weights: dict[str, Any]) -> None:
    import gguf

    text: dict[str, Any] = TEXT
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_context_length(text["max_position_embeddings"])
    writer.add_embedding_length(text["hidden_size"])
    writer.add_block_count(text["num_hidden_layers"])
    writer.add_feed_forward_length(text["intermediate_size"])
    writer.add_head_count(text["num_attention_heads"])
    writer.add_head_count_kv(text["num_key_value_heads"])
    writer.add_key_length(text["head_dim"])
    writer.add_value_length(text["head_dim"])
    writer.add_rope_freq_base(text["rope_theta"])
    writer.add_float32("gemma3.rope.freq_base_swa", text["rope_local_base_freq"])
    writer.add_sliding_window(text["sliding_window"])
    writer.add_layer_norm_rms_eps(text["rms_norm_eps"])
    writer.add_vocab_size(text["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    tokens = [*vocabulary(text["vocab_size"] - len(MARKS)), *MARKS]
    kinds = [gguf.TokenType.NORMAL] * (len(tokens) - len(MARKS))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds + [gguf.TokenType.CONTROL] * len(MARKS))
    writer.add_token_merges([f"{tokens[0]} {tokens[1]}"])  # one that no vocabulary knows, not none
    names = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}
    for name, array in weights.items():
        name = name.removeprefix("language_model.model.")
        if name in names:
            _add(writer, names[name], array, plus_one="norm" in name)
        elif name.startswith("layers."):
            _, layer, part = name.removesuffix(".weight").split(".", 2)
            _add(writer, f"blk.{layer}.{TEXT_LAYER[part]}.weight", array, plus_one="norm" in part)
    _finish(writer)


def _write_tower(path: Path, weights: dict[str, Any]) -> None:
    import gguf

    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    writer.add_string("clip.projector_type", "gemma3")
    numbers = {
        "image_size": TOWER["image_size"],
        "patch_size": TOWER["patch_size"],
        "embedding_length": TOWER["hidden_size"],
        "feed_forward_length": TOWER["intermediate_size"],
        "block_count": TOWER["num_hidden_layers"],
        "projection_dim": TEXT["hidden_size"],
        "attention.head_count": TOWER["num_attention_heads"],
    }
    for key, number in numbers.items():
        writer.add_uint32(f"clip.vision.{key}", number)  # type: ignore[arg-type]
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", [0.5] * 3)
    writer.add_array("clip.vision.image_std", [0.5] * 3)
    for kind in ("weight", "bias"):
        _add(writer, f"v.patch_embd.{kind}", weights[f"{PATCHES}.{kind}"], exact=True)
        _add(writer, f"v.post_ln.{kind}", weights[f"{LAST}.{kind}"])
    _add(writer, "v.position_embd.weight", weights[PLACES], exact=True)
    projection = weights[f"{PROJECTOR}input_projection_weight"]
    _add(writer, "mm.input_projection.weight", projection)
    norm = weights[f"{PROJECTOR}soft_emb_norm.weight"]
    _add(writer, "mm.soft_emb_norm.weight", norm, plus_one=True)
    before = "vision_tower.vision_model.encoder.layers."
    for name, array in weights.items():
        if name.startswith(before):
            layer, part = name.removeprefix(before).split(".", 1)
            part, _, kind = part.rpartition(".")
            _add(writer, f"v.blk.{layer}.{TOWER_LAYER[part]}.{kind}", array)
    _finish(writer)


def _add(
    writer: Any, name: str, array: Any, *, plus_one: bool = False, exact: bool = False
) -> None:
    """Add a tensor: matrices in bfloat16, unless they are exact; norms of Gemma as 1 + weight."""
    import gguf
    import mlx.core as mx
    import numpy as np

    own = np.array(array.astype(mx.float32)) + (1 if plus_one else 0)
    if own.ndim == 1 or exact:
        writer.add_tensor(name, own.astype(np.float32))
        return
    kind = gguf.GGMLQuantizationType.BF16
    writer.add_tensor(name, gguf.quants.quantize(own, kind), raw_dtype=kind)


def _finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        _make_folder(Path(sys.argv[1]) / "small-seer", SMALL)
    else:
        _make(Path(sys.argv[1]), Path(sys.argv[2]))
