"""A perceptron of two layers."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers import activations
from mlx.nn.layers.linear import Linear

from cowmlx.errors import BadFormat
from cowmlx.networks.blocks.block import Block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ACTIVATIONS: dict[str, Any] = {
    "gelu": activations.gelu,
    "gelu_approx": activations.gelu_approx,
    "relu": activations.relu,
    "relu2": activations.relu2,
    "silu": activations.silu,
    "tanh": mx.tanh,
}


class MLP(Block):
    """down(activation(up(x))).

    Args:
        dims: D.
        hidden_dims: values between the two layers.
        activation: "gelu", "gelu_approx", "relu", "relu2", "silu" or "tanh".
        bias: whether both layers have one.
    """

    def __init__(
        self, *, dims: int, hidden_dims: int, activation: str = "gelu", bias: bool = True
    ) -> None:
        super().__init__(dims, dims)
        if activation not in _ACTIVATIONS:
            known = ", ".join(_ACTIVATIONS)
            raise BadFormat(
                f"activation is {activation!r}; it can be {known}",
                reason="invalid_config",
                key="activation",
                value=activation,
                accepted=known,
            )
        self.up_proj = Linear(dims, hidden_dims, bias=bias)
        self.down_proj = Linear(hidden_dims, dims, bias=bias)
        self._activation = activation

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Block) -> mx.array:
        """Map (B, T, D) to (B, T, D)."""
        hidden: mx.array = _ACTIVATIONS[self._activation](self.up_proj(x))
        return self.down_proj(hidden)
