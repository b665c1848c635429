"""A ``vocab.txt`` alone: the tokenizer that BERT's classes of transformers make of it."""

from __future__ import annotations

import os

from cowmlx import resources
from cowmlx.errors import BadFormat
from cowmlx.folders import config as config_files
from cowmlx.text import tokenizer_bounds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = "vocab.txt"
_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
_TYPES = ("bert", "distilbert", "electra")  # whose folders may name no class
_SPECIAL = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
_LONGEST = 100  # characters of a word that is looked up
_TIMES = 16  # the file's size that a tokenizer takes


def is_usable(path: str, settings: dict[str, Any], config: dict[str, Any]) -> bool:
    """Tell whether a folder's tokenizer is BERT's, made of its ``vocab.txt``.

    Args:
        path: the folder.
        settings: its ``tokenizer_config.json``.
        config: its ``config.json``.
    """
    if not os.path.isfile(os.path.join(path, NAME)):
        return False
    named = settings.get("tokenizer_class")
    if isinstance(named, str):
        return named.removesuffix("Fast") in _CLASSES
    return config.get("model_type") in _TYPES


def load(path: str, settings: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
    """Make the tokenizer.

    Returns:
        The bytes that it may make of one, the library's tokenizer, and its named special tokens.

    Raises:
        BadFormat: the file has an empty line or a token twice, or lacks a special token.
    """
    from tokenizers import (
        AddedToken,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

    file = os.path.join(path, NAME)
    resources.require_memory(_TIMES * os.path.getsize(file), file)
    vocabulary = _read(file)
    special = dict(_SPECIAL)
    for name in special:
        own = settings.get(name)
        own = own.get("content") if isinstance(own, dict) else own
        special[name] = own if isinstance(own, str) else special[name]
    for name in ("unk_token", "sep_token", "cls_token"):
        if special[name] not in vocabulary:
            raise BadFormat(
                f"{file} lacks {special[name]}, the {name}", reason="invalid_tokenizer", file=file
            )
    made = Tokenizer(
        models.WordPiece(
            vocabulary, unk_token=special["unk_token"], max_input_chars_per_word=_LONGEST
        )
    )
    accents = settings.get("strip_accents")
    made.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars") is not False,
        strip_accents=accents if isinstance(accents, bool) else None,
        lowercase=settings.get("do_lower_case") is not False,
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(prefix="##")
    made.add_special_tokens(
        [AddedToken(text, special=True) for text in special.values() if text in vocabulary]
    )
    begin, end = special["cls_token"], special["sep_token"]
    # By ids: a template would read a token's text.
    made.post_processor = processors.BertProcessing(
        (end, vocabulary[end]), (begin, vocabulary[begin])
    )
    growth, _ = tokenizer_bounds.check_text(made.to_str(), file)
    return growth, made, {name: text for name, text in special.items() if text in vocabulary}


def _read(file: str) -> dict[str, int]:
    """Return the ids of a file's tokens: a line each."""
    lines = config_files.read_text(file).replace("\r\n", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    vocabulary = {line: index for index, line in enumerate(lines)}
    if len(vocabulary) != len(lines) or "" in vocabulary:
        odd = next(n for n, line in enumerate(lines) if not line or vocabulary[line] != n)
        raise BadFormat(
            f"{file}, line {odd + 1}: the token is empty, or stands in another line, too",
            reason="invalid_tokenizer",
            file=file,
        )
    return vocabulary
