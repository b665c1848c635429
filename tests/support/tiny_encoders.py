"""Tiny random encoders on disk, in Hugging Face's format, and what transformers makes of them.

``tests/fixtures/encoders`` holds configs, names and shapes of weights, and results. The weights
themselves follow from their names, so that both sides fill in the same numbers.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from support.paths import ROOT

FIXTURES = ROOT / "tests/fixtures/encoders"
LENGTH = 40  # tokens of the longest text
SPECIAL = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
_SYLLABLES = [first + second for first in "bcdfghjklmnpqrstvwxyz" for second in "aeiou"]
VOCABULARY = [*SPECIAL, *_SYLLABLES, *(f"##{syllable}" for syllable in _SYLLABLES)]

_SIZES: dict[str, Any] = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": LENGTH,
    "pad_token_id": 1,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
}
_BEHIND: dict[str, Any] = {**_SIZES, "max_position_embeddings": LENGTH + 2}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {**_SIZES, "type_vocab_size": 2},
    "distilbert": {
        "vocab_size": len(VOCABULARY),
        "dim": 48,
        "n_layers": 2,
        "n_heads": 4,
        "hidden_dim": 64,
        "max_position_embeddings": LENGTH,
        "pad_token_id": 1,
        "activation": "gelu",
    },
    "electra": {**_SIZES, "embedding_size": 24, "type_vocab_size": 2, "hidden_act": "gelu_new"},
    "mpnet": {**_BEHIND, "relative_attention_num_buckets": 32},
    "modernbert": {
        **_SIZES,
        "num_hidden_layers": 4,
        "global_attn_every_n_layers": 3,
        "local_attention": 8,
        "hidden_activation": "gelu",
        "norm_eps": 1e-6,
        **{"cls_token_id": 0, "sep_token_id": 2, "bos_token_id": 0, "eos_token_id": 2},
    },
    "nomic_bert": {**_SIZES, "type_vocab_size": 2, "hidden_act": "silu"},
    "deberta-v2": {
        **_SIZES,
        "relative_attention": True,
        "position_buckets": 8,
        "max_relative_positions": -1,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "roberta": {**_BEHIND, "type_vocab_size": 1},
    "xlm-roberta": {**_BEHIND, "type_vocab_size": 1},
}
# The text of a name is tokens by their places in the vocabulary.
TEXTS = [
    [7],
    [20, 9, 31],
    [44, 150, 150, 8, 61],
    list(range(5, 23)),
    [5 + 7 * index % 105 for index in range(LENGTH - 2)],
]
PAIRS = [([9, 12, 60], [44, 101]), ([70], [5, 6, 7, 8, 9, 10, 11]), ([33, 5], [80])]
LABELS = 3


def framed(*texts: list[int]) -> list[int]:
    """The tokens that a model reads: [CLS], and [SEP] behind every text."""
    return [0, *(token for text in texts for token in [*text, 2])]


def written(tokens: list[int]) -> str:
    """The text of tokens."""
    words = [VOCABULARY[token] for token in tokens]
    return "".join(word[2:] if word[:2] == "##" else f" {word}" for word in words).strip()


def config_of(name: str, head: str = "") -> dict[str, Any]:
    """The config of an architecture; ``head`` as "SequenceClassification"."""
    config = {"model_type": name, **CONFIGS[name]}
    config["architectures"] = [f"TinyFor{head}" if head else "TinyModel"]
    if head:
        config["id2label"] = {str(index): f"kind {index}" for index in range(LABELS)}
        config["label2id"] = {f"kind {index}": index for index in range(LABELS)}
    return config


def weights(shapes: dict[str, list[int]]) -> dict[str, Any]:
    """The random numbers of weights: matrices by fan-in, norms near 1, tables wide."""
    made = {}
    for name, shape in shapes.items():
        numbers = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
        if "norm" in name.lower() and name.endswith("weight"):
            numbers = 1 + 0.1 * numbers
        elif len(shape) < 2:
            numbers = 0.1 * numbers
        elif "embeddings" not in name and "relative" not in name:
            numbers = numbers / shape[-1] ** 0.5
        made[name] = numbers.astype(np.float32)
    return made


def fixture(name: str, head: str = "") -> dict[str, Any]:
    """Names and shapes of weights, and transformers' results."""
    known: dict[str, Any] = json.loads(
        (FIXTURES / f"{name}{'-' * bool(head)}{head}.json").read_text()
    )
    return known


def make(
    folder: Path,
    name: str,
    head: str = "",
    *,
    dtype: str = "float32",
    prefix: str = "",
    config: dict[str, Any] | None = None,
) -> Path:
    """Write a model's folder, and return it.

    Args:
        folder: where to; it is made.
        name: of :data:`CONFIGS`.
        head: as for :func:`config_of`.
        dtype: of the weights.
        prefix: of the names of weights.
        config: more keys of the config.
    """
    import mlx.core as mx

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config_of(name, head), **(config or {})}))
    arrays = {
        f"{prefix}{own}": mx.array(array).astype(getattr(mx, dtype))
        for own, array in weights(fixture(name, head)["shapes"]).items()
    }
    mx.save_safetensors(str(folder / "model.safetensors"), arrays, {"format": "pt"})
    (folder / "tokenizer.json").write_text(tokenizer().to_str())
    named = {f"{kind.strip('[]').lower()}_token": kind for kind in SPECIAL}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return folder


def tokenizer() -> Any:
    """A WordPiece tokenizer with the vocabulary."""
    from tokenizers import (
        AddedToken,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

    vocabulary = {text: index for index, text in enumerate(VOCABULARY)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    made.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 0), ("[SEP]", 2)],
    )
    return made
