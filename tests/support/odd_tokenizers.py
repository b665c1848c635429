"""Tokenizers with parts that the usual families lack, made of the usual ones."""

from __future__ import annotations

import json
from typing import Any

from support import tokenizers as kinds

GPT_4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT_4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
POSSESSIVE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
_BY_BYTES: dict[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}


def split(pattern: dict[str, str], behavior: str = "Isolated", invert: bool = False) -> Any:
    """The pre-tokenizer that splits around a pattern."""
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def by_words(pattern: str) -> Any:
    """The pre-tokenizer of a byte-level vocabulary with other words."""
    return {"type": "Sequence", "pretokenizers": [split({"Regex": pattern}), _BY_BYTES]}


def replace(text: str, content: str) -> Any:
    """The normalizer that replaces a text."""
    return {"type": "Replace", "pattern": {"String": text}, "content": content}


def replace_regex(pattern: str, content: str) -> Any:
    """The normalizer that replaces the matches of a pattern."""
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def in_turn(*parts: Any) -> Any:
    """One normalizer after another."""
    return {"type": "Sequence", "normalizers": list(parts)}


def sequence(*parts: Any) -> Any:
    """One pre-tokenizer after another."""
    return {"type": "Sequence", "pretokenizers": list(parts)}


STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
LOWERCASE, PREPEND = {"type": "Lowercase"}, {"type": "Prepend", "prepend": "▁"}
_SCHEME = {"type": "Metaspace", "replacement": "▁"}


def _added(**flags: bool) -> list[dict[str, Any]]:
    plain = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    texts = ["<tag>", "fox", "  ", "\n\n", "Ü", ", and", "e the"]
    return [{"content": text, "special": False, **plain, **flags} for text in texts]


# By name: the family it is made of, and what differs in tokenizer.json.
ODD: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt-4": ("bpe", {"pre_tokenizer": by_words(GPT_4)}),
    "gpt-4o": ("bpe", {"pre_tokenizer": by_words(GPT_4O), "normalizer": {"type": "NFC"}}),
    "possessive": ("bpe", {"pre_tokenizer": by_words(POSSESSIVE)}),
    "digits": (
        "bpe",
        {
            "pre_tokenizer": sequence(
                {"type": "Digits", "individual_digits": True},
                {
                    "type": "ByteLevel",
                    "add_prefix_space": True,
                    "trim_offsets": True,
                    "use_regex": True,
                },
            )
        },
    ),
    "deepseek": (
        "bpe",
        {
            "pre_tokenizer": sequence(
                split({"Regex": r"\p{N}{1,3}"}),
                split({"Regex": "[一-龥\u3040-\u309f\u30a0-\u30ff]+"}),
                *by_words(r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|\s+(?!\S)|\s+")[
                    "pretokenizers"
                ],
            )
        },
    ),
    "thousands": ("bpe", {"pre_tokenizer": by_words(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|\D+")}),
    "bytes alone": (
        "bpe",
        {"pre_tokenizer": {**_BY_BYTES, "add_prefix_space": True}},
    ),
    "bytes normalized": ("bpe", {"pre_tokenizer": None, "normalizer": {"type": "ByteLevel"}}),
    "contiguous": (
        "bpe",
        {"pre_tokenizer": sequence(split({"Regex": r"\s"}, "Contiguous"), by_words(GPT_4))},
    ),
    "previous": (
        "bpe",
        {"pre_tokenizer": sequence(split({"String": " "}, "MergedWithPrevious"), by_words(GPT_4))},
    ),
    "next": (
        "bpe",
        {"pre_tokenizer": sequence(split({"Regex": "[,.]"}, "MergedWithNext"), by_words(GPT_4))},
    ),
    "inverted": (
        "bpe",
        {"pre_tokenizer": sequence(split({"Regex": r"\w+"}, "Removed", True), by_words(GPT_4))},
    ),
    "added": ("bpe", {"added": _added()}),
    "added, stripping": ("bpe", {"added": _added(lstrip=True, rstrip=True)}),
    "added, words": ("bpe", {"added": _added(single_word=True)}),
    "added, normalized": (
        "bpe",
        {
            "normalizer": in_turn(LOWERCASE, {"type": "NFC"}),
            "added": _added(normalized=True, rstrip=True),
        },
    ),
    "gemma": (
        "spm",
        {
            "normalizer": replace(" ", "▁"),
            "pre_tokenizer": split({"String": " "}, "MergedWithPrevious"),
        },
    ),
    "llama 2, added": ("spm", {"added": _added()}),
    "metaspace": ("spm", {"normalizer": None, "pre_tokenizer": {**_SCHEME, "split": True}}),
    "metaspace first": (
        "spm",
        {
            "normalizer": None,
            "pre_tokenizer": {**_SCHEME, "prepend_scheme": "first", "split": False},
        },
    ),
    "ignoring merges": ("spm", {"model": {"ignore_merges": True}}),
    "stripped": ("spm", {"normalizer": in_turn(STRIP, PREPEND, replace(" ", "▁"))}),
    "squeezed": (
        "spm",
        {"normalizer": in_turn(replace_regex(" {2,}", " "), PREPEND, replace(" ", "▁"))},
    ),
    "longer": ("spm", {"normalizer": in_turn(replace("the", "a"), replace(" ", "▁▁"))}),
    "emptied": ("spm", {"normalizer": in_turn(replace(",", ""), replace(" ", "▁"))}),
    "decomposed": ("spm", {"normalizer": in_turn({"type": "NFKD"}, replace(" ", "▁"))}),
    "unigram, kept whole": ("unigram", {"pre_tokenizer": {**_SCHEME, "split": False}}),
    "albert": (
        "unigram",
        {"normalizer": in_turn({"type": "NFKD"}, {"type": "StripAccents"}, LOWERCASE)},
    ),
    "words": ("wordpiece", {"pre_tokenizer": {"type": "Whitespace"}}),
    "blanks": ("wordpiece", {"pre_tokenizer": {"type": "WhitespaceSplit"}}),
    "scripts": ("wordpiece", {"pre_tokenizer": {"type": "UnicodeScripts"}}),
    "commas": (
        "wordpiece",
        {"pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": ","}},
    ),
    "punctuation": (
        "wordpiece",
        {
            "pre_tokenizer": sequence(
                {"type": "Punctuation", "behavior": "Isolated"}, {"type": "WhitespaceSplit"}
            )
        },
    ),
}


def build(name: str) -> str:
    """Return a ``tokenizer.json``: of a family, or of one of ODD."""
    family, changes = ODD.get(name, (name, {}))
    state = json.loads(kinds.build(family)[0])
    for key, value in changes.items():
        if key == "added":
            state["added_tokens"] += [
                {"id": 5000 + number, **token} for number, token in enumerate(value)
            ]
        elif key == "model":
            state["model"].update(value)
        else:
            state[key] = value
    return json.dumps(state, ensure_ascii=False)
