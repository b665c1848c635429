"""A place where several branches meet: a residual stream."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.networks.blocks.block import Block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Identity(Block):
    """The sum of what arrives, unchanged.

    Args:
        dims: D.
    """

    def __init__(self, *, dims: int) -> None:
        super().__init__(dims, dims)

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Block) -> mx.array:
        """Return (B, T, D) as it is."""
        return x
