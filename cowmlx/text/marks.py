"""Marks that keep text from outside apart from the special tokens that a template writes.

They stand in texts while a template renders them, and decide how the prompt is encoded.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from cowmlx.text.tokenizer import PART

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Generator
    from typing import Any

    from cowmlx.text.tokenizer import Tokenizer

# Around special-token text that is to stay text, and behind text that may begin some. Private use
# characters: no tokenizer has them in a special token, and they are taken out of messages, as are
# those between, which mark a continuation.
_OPEN, _CLOSE, _EDGE = "\U000f0000", "\U000f0001", "\U000f0004"
_MARKS = re.compile("[\U000f0000-\U000f0004]")
_ENCLOSED = re.compile(f"({_OPEN}[^{_OPEN}{_CLOSE}]*{_CLOSE})")
# Python and JSON escape marks in strings inside lists and objects.
_ESCAPES = ("\\U000f0000", "\\udb80\\udc00")
_ESCAPED = re.compile(r"\\U000f000[0-4]|\\udb80\\udc0[0-4]")
_COST = 32  # characters that could be encoded while a piece is begun


def pattern_of(texts: Collection[str]) -> re.Pattern[str] | None:
    """Return what matches any of these texts, the longest first; None for none."""
    ordered = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def marked(text: str, pattern: re.Pattern[str]) -> str:
    """Enclose the special-token text in a text by marks."""
    return pattern.sub(_enclosed, _MARKS.sub("", text))


def _enclosed(match: re.Match[str]) -> str:
    return f"{_OPEN}{match.group()}{_CLOSE}"


class Guard:
    """Keeps texts plain in the strings of messages and options, whatever a template makes of them.

    Args:
        texts: those of special tokens. Without any, a guard only keeps strings from being taken
            for escaped marks.
    """

    def __init__(self, texts: Collection[str] = ()) -> None:
        self._pattern = pattern_of(texts)
        self._texts = sorted((*texts, *_ESCAPES))
        first = "".join({text[0] for text in self._texts})
        self._first = re.compile(f"[{re.escape(first)}]")
        self._longest = max(map(len, self._texts))

    def finds(self, value: Any) -> bool:
        """Whether a string in a value has special-token text, or ends as if some began there."""
        if isinstance(value, str):
            text = _MARKS.sub("", value)
            found = self._pattern is not None and self._pattern.search(text) is not None
            return found or self._may_continue(text)
        if isinstance(value, dict):
            return any(self.finds(item) for item in value.values()) or any(
                self.finds(key) for key in value if not key.isidentifier()
            )
        return isinstance(value, list) and any(map(self.finds, value))

    def mark(self, value: Any) -> Any:
        """Put marks into the strings of a value, and into keys that templates do not look up."""
        if isinstance(value, str):
            return self._mark(value)
        if isinstance(value, dict):
            return {
                key if key.isidentifier() else self._mark(key): self.mark(item)
                for key, item in value.items()
            }
        return [self.mark(item) for item in value] if isinstance(value, list) else value

    def _mark(self, value: str) -> str:
        text = _MARKS.sub("", value)
        whole = text if self._pattern is None else self._pattern.sub(_enclosed, text)
        whole = _ESCAPED.sub(_divided, whole)
        if not self._may_continue(text):
            return whole
        end = len(whole.rstrip())  # templates trim
        return whole[:end] + _EDGE + whole[end:]

    def _may_continue(self, text: str) -> bool:
        """Whether special-token text may begin at the end of a text, and end in a later one."""
        if text.isidentifier():  # a role or a type, which templates compare
            return False
        end = len(text.rstrip())
        begin = max(0, end - self._longest + 1)
        for match in self._first.finditer(text, begin, end):
            tail = text[match.start() : end]
            after = bisect_right(self._texts, tail)
            if after < len(self._texts) and self._texts[after].startswith(tail):
                return True
        return False

    def settle(self, text: str) -> str:
        """Return a rendered prompt with the marks that its tokens depend on.

        Escaped marks are marks again, and only those ends of strings stay marked that are inside
        special-token text.
        """
        text = _ESCAPED.sub(lambda mark: chr(ord(_OPEN) + int(mark.group()[-1])), text)
        if _EDGE not in text:
            return text
        plain = _MARKS.sub("", text)
        first, *rest = text.split(_EDGE)
        pieces, at = [first], len(_MARKS.sub("", first))
        for piece in rest:
            pieces += (_EDGE, piece) if self._spans(plain, at) else (piece,)
            at += len(_MARKS.sub("", piece))
        return "".join(pieces)

    def _spans(self, text: str, at: int) -> bool:
        """Whether special-token text may begin before a place and end behind it."""
        if self._pattern is None:
            return False
        for start in self._first.finditer(text, max(0, at - self._longest + 1), at):
            match = self._pattern.match(text, start.start())
            if match is not None and match.end() > at:
                return True
        return False


def _divided(match: re.Match[str]) -> str:
    return match.group()[:2] + _EDGE + match.group()[2:]


def split_enclosed(text: str) -> list[str]:
    """Split a prompt at what marks enclose, which are the items of odd index."""
    return _ENCLOSED.split(text)


def encode_marked(
    tokenizer: Tokenizer, text: str, *, inner: bool = False
) -> Generator[None, None, list[int]]:
    """Encode a prompt, or an inner part of one, what the marks enclose as plain text."""
    tokens: list[int] = []
    done = 0
    for index, piece in enumerate(_ENCLOSED.split(text)):
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
