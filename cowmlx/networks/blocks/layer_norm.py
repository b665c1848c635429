"""Layer normalisation."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers import normalization

from cowmlx.networks.blocks.block import Block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class LayerNorm(Block):
    """(x - mean) · rsqrt(variance + eps) · weight + bias (arXiv 1607.06450).

    Args:
        dims: D.
        eps: added to the variance.
        bias: whether there is a bias.
    """

    def __init__(self, *, dims: int, eps: float = 1e-5, bias: bool = True) -> None:
        super().__init__(dims, dims)
        self.norm = normalization.LayerNorm(dims, eps=eps, bias=bias)

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Block) -> mx.array:
        """Normalise (B, T, D)."""
        return self.norm(x)
