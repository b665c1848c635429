"""A linear map."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers import linear

from cowmlx.networks.blocks.block import Block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Linear(Block):
    """x Wᵀ + b.

    Args:
        input_dims: columns of W.
        output_dims: rows of W.
        bias: whether there is a b.
    """

    def __init__(self, *, input_dims: int, output_dims: int, bias: bool = False) -> None:
        super().__init__(input_dims, output_dims)
        self.linear = linear.Linear(input_dims, output_dims, bias=bias)

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Block) -> mx.array:
        """Map (B, T, input_dims) to (B, T, output_dims)."""
        return self.linear(x)
