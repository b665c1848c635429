"""A gated perceptron."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.activations import silu
from mlx.nn.layers.linear import Linear

from cowmlx.networks.blocks.block import Block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class SwiGLU(Block):
    """down(silu(gate(x)) · up(x)) (arXiv 2002.05202, eq. 6).

    Args:
        dims: D.
        hidden_dims: values that are gated.
        bias: whether the three layers have one.
    """

    def __init__(self, *, dims: int, hidden_dims: int, bias: bool = False) -> None:
        super().__init__(dims, dims)
        self.gate_proj = Linear(dims, hidden_dims, bias=bias)
        self.up_proj = Linear(dims, hidden_dims, bias=bias)
        self.down_proj = Linear(hidden_dims, dims, bias=bias)

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Block) -> mx.array:
        """Map (B, T, D) to (B, T, D)."""
        return self.down_proj(self._gated(self.gate_proj(x), self.up_proj(x)))

    def _gated(self, gate: mx.array, up: mx.array) -> mx.array:
        return silu(gate) * up
