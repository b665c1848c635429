"""GGUF files of tiny random models, and the folders of what their weights stand for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

# Sizes that every type of blocks divides.
WIDE = {"hidden_size": 256, "head_dim": 64, "intermediate_size": 256, "num_hidden_layers": 2}
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
FAMILIES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "llama": ("llama", gguf.MODEL_ARCH.LLAMA, {}),
    "qwen2": ("qwen2", gguf.MODEL_ARCH.QWEN2, {}),
    "qwen3": ("qwen3", gguf.MODEL_ARCH.QWEN3, {}),
    "gemma2": (
        "gemma2",
        gguf.MODEL_ARCH.GEMMA2,
        {"query_pre_attn_scalar": 64, "tie_word_embeddings": True},
    ),
    "gemma3": (
        "gemma3_text",
        gguf.MODEL_ARCH.GEMMA3,
        {"query_pre_attn_scalar": 64, "sliding_window_pattern": 6, "num_hidden_layers": 7},
    ),
    "phi3": ("phi3", gguf.MODEL_ARCH.PHI3, {"num_key_value_heads": 2}),
}


def make(file: Path, original: Path, family: str, kind: str = "Q8_0", **changes: Any) -> Path:
    """Write a folder's model as GGUF, and return a folder of what its weights stand for.

    Args:
        file: to write.
        original: a folder with weights of float32.
        family: a key of :data:`FAMILIES`.
        kind: the type of matrices.
        changes: metadata by key; None leaves a field out.
    """
    _, architecture, _ = FAMILIES[family]
    config = json.loads((original / "config.json").read_text())
    name = gguf.MODEL_ARCH_NAMES[architecture]
    writer = gguf.GGUFWriter(file, name)
    values = {**_metadata(config, name), **_tokenizer(original), **changes}
    for key, value in values.items():
        if value is not None:
            _add(writer, key, value)
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    exact = {}
    for own, array in mx.load(str(original / "model.safetensors")).items():
        stored = names.get_name(own, try_suffixes=(".weight", ".bias"))
        assert stored is not None, own
        exact[own] = _write(writer, stored, own, np.array(array), family, config, Type[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    folder = Path(shutil.copytree(original, file.with_suffix(".exact")))
    arrays = {own: mx.array(numbers) for own, numbers in exact.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), arrays, metadata={"format": "mlx"})
    return folder


def _write(
    writer: Any, stored: str, own: str, array: Any, family: str, config: dict[str, Any], kind: Type
) -> Any:
    """Write a tensor, and return the numbers that it stands for, as the folder has them."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    rows = np.arange(array.shape[0])
    for part, count in heads.items():
        if family == "llama" and part in own:  # llama.cpp has the halves of a head in pairs
            rows = rows.reshape(config[count], 2, -1).swapaxes(1, 2).reshape(-1)
    array = array[rows]
    plus_one = family in ("gemma2", "gemma3") and own.endswith("norm.weight")
    if array.ndim == 1:
        writer.add_tensor(stored, array + 1 if plus_one else array)
        numbers = (array + 1) - 1 if plus_one else array
    else:
        data = _blocks(array, kind)
        writer.add_tensor(stored, data, raw_dtype=kind)
        numbers = quants.dequantize(data.view(np.uint8) if kind == Type.BF16 else data, kind)
    back = np.empty_like(array)
    back[rows] = numbers.reshape(array.shape)
    return back


def _blocks(array: Any, kind: Type) -> Any:
    """Numbers in blocks; of the types that the package cannot make, random ones."""
    if kind not in (Type.Q4_K, Type.Q5_K, Type.Q6_K):
        return quants.quantize(array, kind)
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    draw = np.random.default_rng(array.size)
    data = draw.integers(0, 256, (array.shape[0], array.shape[1] // numbers, size), np.uint8)
    if kind == Type.Q6_K:
        scales = draw.normal(0, 1e-4, data.shape[:2]).astype(np.float16)[..., None]
        data[..., -2:] = scales.view(np.uint8)
    else:
        # A scale and a minimum that keep the numbers around 0.
        scales = np.array([4e-4, 3e-3] if kind == Type.Q4_K else [2e-4, 3e-3], np.float16)
        data[..., :4] = scales.view(np.uint8)
    return data.reshape(array.shape[0], -1)


def _metadata(config: dict[str, Any], name: str) -> dict[str, Any]:
    keys = {
        "context_length": "max_position_embeddings",
        "embedding_length": "hidden_size",
        "block_count": "num_hidden_layers",
        "feed_forward_length": "intermediate_size",
        "attention.head_count": "num_attention_heads",
        "attention.head_count_kv": "num_key_value_heads",
        "attention.key_length": "head_dim",
        "attention.layer_norm_rms_epsilon": "rms_norm_eps",
        "attention.sliding_window": "sliding_window",
        "rope.freq_base": "rope_theta",
    }
    return {f"{name}.{key}": config.get(own) for key, own in keys.items()}


def _tokenizer(folder: Path) -> dict[str, Any]:
    stored = json.loads((folder / "tokenizer.json").read_text())
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    model, added = stored["model"], {item["content"] for item in stored["added_tokens"]}
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    byte_level = stored["decoder"]["type"] == "ByteLevel"
    made = {
        "model": "gpt2" if byte_level else "llama",
        "pre": "gpt-2" if byte_level else None,
        "tokens": tokens,
        "token_type": [_type_of(text, added) for text in tokens],
        "merges": merges if byte_level else None,
        "scores": None if byte_level else _scores(tokens, model["merges"]),
    }
    for role in ("bos", "eos", "unk", "pad"):
        text = settings.get(f"{role}_token")
        long = {"unk": "unknown", "pad": "padding"}.get(role, role)
        made[f"{long}_token_id"] = None if text is None else model["vocab"][text]
    named = {f"tokenizer.ggml.{key}": value for key, value in made.items()}
    return {**named, "tokenizer.chat_template": settings.get("chat_template")}


def _type_of(text: str, added: set[str]) -> int:
    if text == "<unk>":
        return 2
    if text in added:
        return 3
    return 6 if len(text) == 6 and text.startswith("<0x") else 1


def _scores(tokens: list[str], merges: list[Any]) -> list[float]:
    """A better score for what is merged earlier, as SentencePiece has it."""
    ranks = {"".join(pair): rank for rank, pair in reversed(list(enumerate(merges)))}
    return [-float(ranks.get(text, len(tokens) + 1)) for text in tokens]


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_array(key, value)
