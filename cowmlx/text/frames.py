"""The tokens that a tokenizer puts around a text, or around a pair of texts."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Frame(NamedTuple):
    """The tokens around texts.

    Attributes:
        tokens: before, between and behind the texts.
        types: the token types of these tokens.
        text_types: the token type of each text.
    """

    tokens: list[list[int]]
    types: list[list[int]]
    text_types: list[int]


def frame_of(encoding: Any, ids: list[int], count: int, size: int) -> Frame | None:
    """Return the tokens around the texts of an encoding; None if these are cut or change places.

    Args:
        encoding: of the ``tokenizers`` library.
        ids: its tokens.
        count: of texts, 1 or 2.
        size: tokens of each text.
    """
    sides, types = encoding.sequence_ids, encoding.type_ids
    if not size or any(sides.count(side) != size for side in range(count)):
        return None
    begins = [sides.index(side) for side in range(count)]
    if begins != sorted(begins):
        return None
    ends = [0, *(begin + size for begin in begins)]
    parts = [slice(*edges) for edges in zip(ends, [*begins, len(ids)], strict=True)]
    return Frame(
        [ids[part] for part in parts],
        [types[part] for part in parts],
        [types[begin] for begin in begins],
    )
