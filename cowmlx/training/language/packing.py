"""Short rows put behind each other, so that fewer tokens fill up batches.

A row sees what comes before it in its window, as where whole corpora are cut into windows; its
first token is not to be learnt, so that the targets are the same as without packing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort

from cowmlx.training.language.rows import Row


def pack(rows: list[Row], window: int) -> list[Row]:
    """Return rows of at most ``window`` tokens, made of the given ones, which are no longer.

    Each goes, the longest first, where the least room is left behind it.
    """
    order = sorted(range(len(rows)), key=lambda index: (-len(rows[index].tokens), index))
    made: list[Row] = []
    room: dict[int, list[int]] = {}  # of made rows, by what is left
    sizes: list[int] = []  # the keys, ascending
    for index in order:
        row = rows[index]
        length = len(row.tokens)
        at = bisect_left(sizes, length)
        if at == len(sizes):
            target, left = len(made), window
            made.append(Row(array("i"), []))
        else:
            left = sizes[at]
            target = room[left].pop()
            if not room[left]:
                del room[left], sizes[at]
        _append(made[target], row)
        left -= length
        if left:
            if left not in room:
                room[left] = []
                insort(sizes, left)
            room[left].append(target)
    return made


def _append(target: Row, row: Row) -> None:
    begin = len(target.tokens)
    target.tokens.extend(row.tokens)
    target.targets.extend((begin + first, begin + end) for first, end in row.targets)
