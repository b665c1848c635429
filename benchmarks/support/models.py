"""Models to measure with: calf, and random ones of known shapes made on the fly."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.support.paths import BUILD, CALF

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}


@dataclass(frozen=True)
class Shape:
    """A Llama or a Qwen 3 without end tokens: a generation is as long as it is asked to be."""

    hidden: int
    layers: int
    heads: int
    key_heads: int
    intermediate: int
    vocabulary: int
    positions: int = 32768
    bits: int = 32  # 32: float32; 16: bfloat16; else quantized, with scales of bfloat16
    family: str = "llama"
    head_size: int = 0  # 0: hidden / heads

    @property
    def head(self) -> int:
        """The size of a head."""
        return self.head_size or self.hidden // self.heads

    def config(self) -> dict[str, object]:
        """The config.json of it."""
        return {
            "architectures": [ARCHITECTURES[self.family]],
            "model_type": self.family,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_heads,
            "head_dim": self.head,
            "intermediate_size": self.intermediate,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.positions,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "tie_word_embeddings": True,
            "torch_dtype": "float32" if self.bits == 32 else "bfloat16",
        }


@dataclass(frozen=True)
class MixtureShape(Shape):
    """A Qwen 3 with experts, `intermediate` wide each."""

    family: str = "qwen3_moe"
    experts: int = 16
    chosen: int = 4

    def config(self) -> dict[str, object]:
        """The config.json of it."""
        return {
            **super().config(),
            "num_experts": self.experts,
            "num_experts_per_tok": self.chosen,
            "moe_intermediate_size": self.intermediate,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "norm_topk_prob": True,
        }


@dataclass(frozen=True)
class RecurrentShape:
    """An xLSTM without end tokens."""

    hidden: int
    layers: int
    heads: int
    vocabulary: int
    positions: int

    def config(self) -> dict[str, object]:
        """The config.json of it."""
        return {
            "architectures": ["xLSTMForCausalLM"],
            "model_type": "xlstm",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_heads": self.heads,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.positions,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
        }


SHAPES: dict[str, Shape | RecurrentShape] = {
    "calf-shaped": Shape(128, 4, 4, 2, 384, 1280),  # calf's own, untrained
    "one-layer": Shape(128, 1, 4, 2, 384, 1280),
    "S": Shape(384, 6, 6, 6, 1152, 8192),  # 15M parameters
    "S of 4 bits": Shape(384, 6, 6, 6, 1152, 8192, bits=4),
    "M": Shape(768, 12, 12, 12, 2048, 32000),  # 110M
    "M of 4 bits": Shape(768, 12, 12, 12, 2048, 32000, bits=4),
    # Qwen3-0.6B's.
    "L": Shape(1024, 28, 16, 8, 3072, 151936, family="qwen3", head_size=128),
    "wide": Shape(64, 2, 2, 2, 128, 128000),  # 8M, nearly all of them the vocabulary's
    # 200M, of which a token uses 60M.
    "experts": MixtureShape(768, 10, 12, 4, 512, 8192),
    "experts of 16 bits": MixtureShape(768, 10, 12, 4, 512, 8192, bits=16),
    "experts of 4 bits": MixtureShape(768, 10, 12, 4, 512, 8192, bits=4),
    "small experts": MixtureShape(384, 4, 6, 2, 256, 4096),  # 23M, of which a token uses 9M
    "small experts of 4 bits": MixtureShape(384, 4, 6, 2, 256, 4096, bits=4),
    # Twins of 27M, to measure with behind many tokens.
    "long-llama": Shape(512, 8, 4, 2, 1584, 2048, positions=40960),
    "long-xlstm": RecurrentShape(512, 8, 4, 2048, positions=40960),
}


def models(*names: str | bool) -> Iterator[tuple[str, Path]]:
    """Yield the name and folder of each model; ``False`` stands for one that is left out.

    "calf" is the bundled model without end tokens, so that a generation has the length asked for.
    """
    for name in names:
        if isinstance(name, str):
            yield name, _endless_calf() if name == "calf" else random_model(name)


def _endless_calf() -> Path:
    folder = BUILD / "models" / "endless-calf"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in ("model.safetensors", "tokenizer.json"):
        shutil.copy(CALF / file, folder)
    for file in ("config.json", "tokenizer_config.json"):
        settings = json.loads((CALF / file).read_text())
        kept = {key: value for key, value in settings.items() if not key.startswith("eos_token")}
        (folder / file).write_text(json.dumps(kept))
    return folder


def is_made(shape: Shape | RecurrentShape, folder: Path) -> bool:
    """Whether a folder has the random model of a shape, and not one of an earlier shape."""
    if not (folder / "tokenizer.json").exists():
        return False
    config = json.loads((folder / "config.json").read_text())
    return all(config.get(key) == value for key, value in shape.config().items())


def random_model(name: str) -> Path:
    """Return the folder of a random model, made if need be."""
    folder = BUILD / "models" / name
    if not is_made(SHAPES[name], folder):
        folder.mkdir(parents=True, exist_ok=True)
        # mlx stays out of this process, which starts others.
        subprocess.run([sys.executable, "-m", __spec__.name, name, str(folder)], check=True)
    return folder


def draftable(name: str, draft_layers: int) -> tuple[Path, Path]:
    """Return a random model whose first layers do all the work, and these alone as its draft.

    Its other layers add nothing, so the draft is always right: the most that drafts can gain.
    """
    folder, draft = (BUILD / "models" / f"{name}-{part}" for part in ("draftable", "draft"))
    if not (draft / "tokenizer.json").exists():
        command = [sys.executable, "-m", __spec__.name, name, folder, draft, draft_layers]
        subprocess.run([str(part) for part in command], check=True)
    return folder, draft


def vocabulary_size(folder: Path) -> int:
    """Return how many tokens a model has."""
    return int(json.loads((folder / "config.json").read_text())["vocab_size"])


def parameters(folder: Path) -> int:
    """Return how many numbers a model's weights hold."""
    with open(folder / "model.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


def random_prompt(folder: Path, length: int, seed: int = 0) -> list[int]:
    """Return the same random tokens every time; the first few are left to special ones."""
    random = Random(length + (seed << 32))
    return [random.randrange(16, vocabulary_size(folder)) for _ in range(length)]


def make(shape: Shape | RecurrentShape, folder: Path) -> dict[str, Any]:
    """Write a random model and return its weights as they were in float32."""
    import mlx.core as mx
    from mlx.nn.layers.quantized import quantize
    from mlx.utils import tree_flatten
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from cowmlx.networks import architectures

    config = shape.config()
    mx.random.seed(7)
    module = architectures.load(str(config["model_type"]))
    network = module.Model(module.ModelArgs.from_dict(config))
    plain = {
        key: mx.random.normal(value.shape) * (0.02 if value.ndim > 1 else 0) + (value.ndim == 1)
        for key, value in tree_flatten(network.parameters())
    }
    weights = plain
    bits = getattr(shape, "bits", 32)
    if bits < 32:
        network.load_weights(list(plain.items()))
        network.set_dtype(mx.bfloat16)
    if bits < 16:
        config["quantization"] = {"group_size": 64, "bits": bits}
        quantize(network, 64, bits)
    if bits < 32:
        weights = dict(tree_flatten(network.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary(shape.vocabulary), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    tokenizer.save(str(folder / "tokenizer.json"))
    return plain


def vocabulary(size: int) -> dict[str, int]:
    """The tokens of a random model: GPT-2's letters for bytes, then invented ones."""
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    return {
        letters[index] if index < len(letters) else f"token{index}": index for index in range(size)
    }


def _make_draftable(name: str, folder: Path, draft: Path, layers: int) -> None:
    import mlx.core as mx

    plain = random_model(name)
    weights: dict[str, mx.array] = mx.load(str(plain / "model.safetensors"))  # type: ignore
    config = json.loads((plain / "config.json").read_text())

    def layer(key: str) -> int:
        return int(key.split(".")[2]) if key.startswith("model.layers.") else -1

    for key in weights:
        if layer(key) >= layers and key.endswith(("o_proj.weight", "down_proj.weight")):
            weights[key] = mx.zeros_like(weights[key])
    first = {key: array for key, array in weights.items() if layer(key) < layers}
    for place, arrays, count in (
        (folder, weights, config["num_hidden_layers"]),
        (draft, first, layers),
    ):
        shutil.copytree(plain, place, dirs_exist_ok=True)
        mx.save_safetensors(str(place / "model.safetensors"), arrays, {"format": "mlx"})
        (place / "config.json").write_text(json.dumps({**config, "num_hidden_layers": count}))


if __name__ == "__main__":
    _name, *_folders = sys.argv[1:]
    if len(_folders) == 1:
        make(SHAPES[_name], Path(_folders[0]))
    else:
        _make_draftable(_name, Path(_folders[0]), Path(_folders[1]), int(_folders[2]))
