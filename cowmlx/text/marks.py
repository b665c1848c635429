"""Text from outside within a prompt: what spells a special token there stays text."""

from __future__ import annotations

import re

from cowmlx.text.tokenizer import PART

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.text.tokenizer import Tokenizer

# Around special-token text that is to stay text. Private use characters: no tokenizer has them
# in a special token, and they are taken out of messages, as is what marks a continuation.
_OPEN, _CLOSE = "\U000f0000", "\U000f0001"
_MARKS = re.compile("[\U000f0000-\U000f0003]")
_COST = 32  # characters that could be encoded while a piece is begun


def pattern_of(texts: list[str]) -> re.Pattern[str] | None:
    """Return what matches any of these texts, the longest first; None for none."""
    ordered = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def holds(value: Any, pattern: re.Pattern[str]) -> bool:
    """Tell whether any string in a value has special-token text, marks left aside."""
    if isinstance(value, str):
        return pattern.search(_MARKS.sub("", value)) is not None
    if isinstance(value, dict):
        return any(holds(item, pattern) for item in value.values())
    return isinstance(value, list) and any(holds(item, pattern) for item in value)


def marked(value: Any, pattern: re.Pattern[str]) -> Any:
    """Enclose the special-token text in strings by marks."""
    if isinstance(value, str):
        return pattern.sub(_enclosed, _MARKS.sub("", value))
    if isinstance(value, dict):
        return {key: marked(item, pattern) for key, item in value.items()}
    if isinstance(value, list):
        return [marked(item, pattern) for item in value]
    return value


def _enclosed(found: re.Match[str]) -> str:
    return f"{_OPEN}{found.group()}{_CLOSE}"


def encode_marked(
    tokenizer: Tokenizer, text: str, *, inner: bool = False
) -> Generator[None, None, list[int]]:
    """Encode a prompt, or an inner part of one, what the marks enclose as plain text."""
    tokens: list[int] = []
    done = 0
    for index, piece in enumerate(re.split(f"({_OPEN}[^{_OPEN}{_CLOSE}]*{_CLOSE})", text)):
        enclosed = piece.startswith(_OPEN) and piece.endswith(_CLOSE) and len(piece) > 1
        # A template may cut through the marks: lone ones only separate.
        for part in filter(None, _MARKS.split(piece)):
            if done > PART:
                yield
                done = 0
            done += len(part) + _COST
            if enclosed:
                tokens += tokenizer.encode_plain(part)
            elif index == 0 and not tokens and not inner:
                tokens += yield from tokenizer.encode_steps(
                    part, add_special=False, parse_special=True
                )
            else:
                tokens += yield from tokenizer.encode_inner_steps(part)
    return tokens
