"""Tiny models with tokens for infill."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from . import tiny_models

QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
_SIZE = 700  # rows of the vocabulary, so that there is place for more tokens


def make(
    folder: pathlib.Path,
    markers: Sequence[str] = QWEN,
    *,
    tokenizer: str = "bpe",
    special: bool = False,
) -> pathlib.Path:
    """Write a model whose tokenizer has markers as added tokens, and return the folder.

    Args:
        folder: where to.
        markers: the texts of the tokens.
        tokenizer: one of ``tests.support.tokenizers.KINDS``.
        special: whether the tokens are special.
    """
    from tokenizers import AddedToken, Tokenizer

    tiny_models.make(folder, "llama", tokenizer=tokenizer, config={"vocab_size": _SIZE})
    path = str(folder / "tokenizer.json")
    backend = Tokenizer.from_file(path)
    backend.add_tokens([AddedToken(text, special=special, normalized=False) for text in markers])
    backend.save(path)
    return folder
