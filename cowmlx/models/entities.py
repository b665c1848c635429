"""Entities: neighbouring words with labels of one kind, in the scheme of BIO."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_OUTSIDE = "O"
_BEGIN, _INSIDE = ("B-", "S-", "U-"), ("I-", "E-", "L-")


class Word(NamedTuple):
    """A word with a label.

    Attributes:
        label: as the model names it.
        probability: of that label.
        begin, end: of the word, in characters.
    """

    label: str
    probability: float
    begin: int
    end: int


def merged(text: str, words: list[Word]) -> list[dict[str, Any]]:
    """Return the entities of a text, as ``model_classify`` reports them.

    Args:
        text: the text.
        words: all of its words, in order.
    """
    groups: list[tuple[str, list[Word]]] = []
    previous: str | None = None
    for word in words:
        kind = word.label[2:] if word.label.startswith((*_BEGIN, *_INSIDE)) else word.label
        if word.label != _OUTSIDE:
            if kind == previous and not word.label.startswith(_BEGIN):
                groups[-1][1].append(word)
            else:
                groups.append((kind, [word]))
        previous = None if word.label == _OUTSIDE else kind
    return [_entity(text, kind, own) for kind, own in groups]


def _entity(text: str, kind: str, words: list[Word]) -> dict[str, Any]:
    begin, end = words[0].begin, words[-1].end
    begin += len(text[begin:end]) - len(text[begin:end].lstrip())  # tokens may have a space
    start = len(text[:begin].encode())
    return {
        "label": kind,
        "text": text[begin:end],
        "begin": start,
        "end": start + len(text[begin:end].encode()),
        "probability": sum(word.probability for word in words) / len(words),
    }
