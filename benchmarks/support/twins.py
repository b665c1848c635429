"""One random model for both sides: a folder for mlx, and a GGUF file for llama.cpp."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.support.models import SHAPES, Shape, make, vocabulary


@dataclass(frozen=True)
class Format:
    """How the same weights are stored on both sides.

    Attributes:
        bits: of a weight on mlx's side; see `Shape`.
        ggml: the type of the matrices in the GGUF file, as its package calls it.
    """

    bits: int
    ggml: str


# A packed weight takes 4.5 or 8.5 bits on both sides: mlx has a scale and a bias of 16 bits for 64
# weights, GGUF a scale of 16 bits for 32.
FORMATS = {
    "fp32": Format(32, "F32"),
    "bf16": Format(16, "BF16"),
    "8bit": Format(8, "Q8_0"),
    "4bit": Format(4, "Q4_0"),
}

# What GGUF calls a layer's weights.
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OTHERS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}


@dataclass(frozen=True)
class Twins:
    """Both forms of a model.

    Attributes:
        shape: what it is.
        mlx: the folder of it.
        gguf: the file of it.
    """

    shape: Shape
    mlx: Path
    gguf: Path


def twins(model: str, stored: str, folder: Path, gguf_package: Path) -> Twins:
    """Return both forms of one of `SHAPES` in one of `FORMATS`, made if need be.

    Args:
        model: the key of the shape.
        stored: the key of the format.
        folder: where they are kept.
        gguf_package: the folder that holds llama.cpp's own `gguf` package.
    """
    shape = SHAPES[model]
    assert isinstance(shape, Shape)
    shape = replace(shape, bits=FORMATS[stored].bits)
    made = Twins(shape, folder / f"{model}-{stored}", folder / f"{model}-{stored}.gguf")
    if not made.gguf.exists():
        # mlx stays out of this process, which starts others.
        command = [sys.executable, "-m", __spec__.name, model, stored, folder, gguf_package]
        subprocess.run([str(part) for part in command], check=True)
    return made


def _make_twins(model: str, stored: str, folder: Path, gguf_package: Path) -> None:
    shape = SHAPES[model]
    assert isinstance(shape, Shape)
    shape = replace(shape, bits=FORMATS[stored].bits)
    place = folder / f"{model}-{stored}"
    place.mkdir(parents=True, exist_ok=True)
    weights = make(shape, place)
    sys.path.insert(0, str(gguf_package))
    unfinished = folder / f"{model}-{stored}.unfinished"
    _write_gguf(unfinished, shape, weights, FORMATS[stored].ggml)
    unfinished.rename(folder / f"{model}-{stored}.gguf")


def _write_gguf(path: Path, shape: Shape, weights: dict[str, Any], ggml: str) -> None:
    """Write the float32 weights as llama.cpp's own converter would."""
    import gguf
    import numpy as np

    kind = gguf.GGMLQuantizationType[ggml]
    config = shape.config()
    writer = gguf.GGUFWriter(path, shape.family)
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(shape.vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    tokens = list(vocabulary(shape.vocabulary))
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_token_merges([f"{tokens[0]} {tokens[1]}"])  # one that no vocabulary knows, not none
    for key, value in weights.items():
        array = np.array(value)
        if shape.family == "llama" and key.endswith(("q_proj.weight", "k_proj.weight")):
            heads = shape.heads if "q_proj" in key else shape.key_heads
            array = _interleaved(array, heads)
        name = _gguf_name(key.removesuffix(".weight")) + ".weight"
        if array.ndim == 1:
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(key: str) -> str:
    if key in OTHERS:
        return OTHERS[key]
    _, _, layer, part = key.split(".", 3)
    return f"blk.{layer}.{LAYER[part]}"


def _interleaved(weight: Any, heads: int) -> Any:
    """Rows of a head in the order of llama.cpp's rotation, whose pairs are neighbours.

    Args:
        weight: (heads * size, hidden), each head's pairs half a head apart.
        heads: how many there are.
    """
    rows, hidden = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, hidden)
    return halves.swapaxes(1, 2).reshape(rows, hidden)


if __name__ == "__main__":
    _make_twins(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
