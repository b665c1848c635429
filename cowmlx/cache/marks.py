"""States of layer caches that are kept while a draft is checked, and put back on rejection."""

from __future__ import annotations

import copy

from cowmlx.cache.trimming import can_trim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Mark:
    """The layers of a sequence at one point.

    Caches that can drop tokens keep nothing and drop them. Of the others it has copies, which
    share their arrays.

    Args:
        layers: of the sequence.
        count: tokens that they hold.
        more: tokens that may have to be dropped.
    """

    __slots__ = ("_kept", "count")

    def __init__(self, layers: list[Any], count: int, more: int) -> None:
        self.count = count
        self._kept = [
            None if can_trim(part, more) else copy.deepcopy(part) for part in _all(layers)
        ]

    def put_back(self, layers: list[Any], dropped: int) -> None:
        """Let layers, or copies of them, hold what they held.

        Args:
            layers: of the sequence, later.
            dropped: tokens that they have got since.
        """
        for part, kept in zip(_all(layers), self._kept, strict=True):
            if kept is not None:
                vars(part).clear()
                vars(part).update(vars(copy.deepcopy(kept)))
            elif part.trim(dropped) != dropped:
                raise RuntimeError(f"a {type(part).__name__} has dropped too few tokens")


def can_mark(layers: list[Any]) -> bool:
    """Whether the states of layers are here: those of ranks are not."""
    return not any(hasattr(part, "network") for part in _all(layers))


def _all(layers: list[Any]) -> list[Any]:
    """Return the caches of all layers, of which one layer may have several."""
    return [part for layer in layers for part in getattr(layer, "caches", (layer,))]
