"""What a sequence held at one moment, sharing its arrays."""

from __future__ import annotations

import copy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def share(layers: list[Any]) -> list[Any]:
    """Return layer caches of their own over the same arrays.

    mlx arrays are values: a deep copy shares the buffer, and a layer that then writes to it gets
    one of its own (copy on write).
    """
    return copy.deepcopy(layers)


class Snapshot:
    """Tokens, and layer caches that hold exactly these. Never changed after it was made.

    Attributes:
        tokens: the tokens held.
        layers: the layer caches; whoever wants to use them takes :func:`share` of them.
    """

    __slots__ = ("layers", "tokens")

    def __init__(self, tokens: list[int], layers: list[Any]) -> None:
        self.tokens = tokens
        self.layers = layers

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, whoever else shares them."""
        return sum(layer.nbytes for layer in self.layers)
