"""Root mean square normalisation."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.networks.blocks.block import Block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class RMSNorm(Block):
    """x · rsqrt(mean(x²) + eps) · weight (arXiv 1910.07467, eq. 4).

    Args:
        dims: D.
        eps: added to the mean.
        float32: take the mean in float32, whatever the type of x is.
    """

    def __init__(self, *, dims: int, eps: float = 1e-5, float32: bool = True) -> None:
        super().__init__(dims, dims)
        self.weight = mx.ones((dims,))
        self._eps = eps
        self._float32 = float32

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Block) -> mx.array:
        """Normalise (B, T, D)."""
        if self._float32:
            return mx.fast.rms_norm(x, self.weight, self._eps)
        mean = mx.mean(mx.square(x), axis=-1, keepdims=True)
        return x * mx.rsqrt(mean + self._eps) * self.weight
