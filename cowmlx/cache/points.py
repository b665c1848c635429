"""States of layer caches: at a position inside a prompt, and while a draft is checked.

They are for caches that cannot drop tokens. Most networks with such caches have layers with keys
and values, too. Those can be cut anywhere, so a :class:`Point` holds the state of the others alone:
it is small, and copies no keys and values.
"""

from __future__ import annotations

import copy

from cowmlx.cache.trimming import can_trim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Point:
    """Tokens, and the states behind them of caches that cannot be cut. Never changed.

    Attributes:
        tokens: the tokens held.
        states: of every cache that has no parts; None for one that can be cut.
    """

    __slots__ = ("states", "tokens")

    def __init__(self, tokens: list[int], states: list[Any]) -> None:
        self.tokens = tokens
        self.states = states

    @property
    def nbytes(self) -> int:
        """Bytes of the states."""
        return sum(state.nbytes for state in self.states if state is not None)


def needs_points(layers: list[Any]) -> bool:
    """Whether some caches of a model cannot be cut at every position."""
    return not all(map(_is_cuttable, _parts(layers)))


def point_of(tokens: list[int], layers: list[Any]) -> Point | None:
    """Return the state of layers that hold these tokens; None where no cache can be cut."""
    parts = list(_parts(layers))
    if not any(map(_is_cuttable, parts)):
        return None
    states = [None if _is_cuttable(part) else copy.deepcopy(part) for part in parts]
    return Point(list(tokens), states)


def go_back(layers: list[Any], held: int, point: Point) -> bool:
    """Let layers hold a point's tokens alone; false if they do not keep step.

    Args:
        layers: those of more tokens, which begin with the point's.
        held: how many these are.
        point: to go back to.
    """
    excess = held - len(point.tokens)
    in_step = True
    for part, state in zip(_parts(layers), point.states, strict=True):
        if state is None:
            in_step = in_step and (not excess or part.trim(excess) == excess)
        else:
            state = copy.deepcopy(state)  # first: there may be no memory for it
            vars(part).clear()
            vars(part).update(vars(state))
    return in_step


class Mark:
    """The layers of a sequence at one point.

    Caches that can drop tokens keep nothing and drop them. Of the others it has copies, which
    share their arrays.

    Args:
        layers: of the sequence.
        count: tokens that they hold.
        more: tokens behind them that can be dropped; the mark is dropped when there are more.
    """

    __slots__ = ("_kept", "count", "more")

    def __init__(self, layers: list[Any], count: int, more: int) -> None:
        self.count = count
        self.more = more
        self._kept = [
            None if can_trim(part, more) else copy.deepcopy(part) for part in _parts(layers)
        ]

    def put_back(self, layers: list[Any], dropped: int) -> None:
        """Let layers, or copies of them, hold what they held.

        Args:
            layers: of the sequence, later.
            dropped: tokens that they have got since.
        """
        for part, kept in zip(_parts(layers), self._kept, strict=True):
            if kept is not None:
                vars(part).clear()
                vars(part).update(vars(copy.deepcopy(kept)))
            elif part.trim(dropped) != dropped:
                raise RuntimeError(f"a {type(part).__name__} has dropped too few tokens")


def can_mark(layers: list[Any]) -> bool:
    """Whether the states of layers are here: those of ranks are not."""
    return not any(hasattr(part, "network") for part in _parts(layers))


def _is_cuttable(part: Any) -> bool:
    """Whether a cache can drop its last tokens, regardless of how many it holds."""
    limited = getattr(part, "max_size", None) or getattr(part, "chunk_size", None)
    return not limited and bool(part.is_trimmable())


def _parts(layers: Any) -> Iterator[Any]:
    """Yield every cache that has no parts."""
    for layer in layers:
        parts = getattr(layer, "caches", None)
        if parts is None:
            yield layer
        else:
            yield from _parts(parts)
