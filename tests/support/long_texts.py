"""Texts that take many turns, and the calls that take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.library import Library

PROSE = "The quick brown fox jumps over the lazy dog, and 42 others; <|im_end|> naïve 日本。\n"
LONG = PROSE * (5_000_000 // len(PROSE.encode()))
LONG_MESSAGE = LONG[: 1 << 20]


def chat(text: str) -> list[dict[str, str]]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


CALLS: dict[str, Callable[[Library, int], Any]] = {
    "tokenize": lambda lib, model: lib.tokenize(model, LONG),
    "detokenize": lambda lib, model: lib.detokenize(model, list(range(300, 400)) * 10000),
    "chat_prompt": lambda lib, model: lib.chat_prompt(model, chat(LONG_MESSAGE)),
    "embed": lambda lib, model: lib.embed(model, [LONG], capacity=10000),
}
