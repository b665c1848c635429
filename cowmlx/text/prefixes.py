"""Texts in order, for the question which of them another text begins with."""

from __future__ import annotations

from bisect import bisect_right

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import AnyStr


def shortest(texts: Iterable[AnyStr]) -> list[AnyStr]:
    """Return texts in order, without those that begin with another one."""
    kept: list[AnyStr] = []
    for text in sorted(texts):
        if not kept or not text.startswith(kept[-1]):
            kept.append(text)
    return kept


def begins(text: AnyStr, texts: list[AnyStr]) -> tuple[bool, bool]:
    """Whether a text begins with one of ``texts``, and whether it is the beginning of one.

    Args:
        text: not empty.
        texts: of :func:`shortest`. One that ``text`` begins with is the last that is not behind it.
    """
    place = bisect_right(texts, text)
    if place and text.startswith(texts[place - 1]):
        return True, False
    return False, place < len(texts) and texts[place].startswith(text)
