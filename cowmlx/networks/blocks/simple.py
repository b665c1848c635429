"""Blocks of a few lines: embedding and head, linear maps, norms, MLPs, a residual stream."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers import activations, embedding, linear, normalization

from cowmlx.networks.blocks import Block, invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.networks.wiring.declaration import BlockSpec

_ACTIVATIONS: dict[str, Any] = {
    "gelu": activations.gelu,
    "gelu_approx": activations.gelu_approx,
    "relu": activations.relu,
    "relu2": activations.relu2,
    "silu": activations.silu,
    "tanh": mx.tanh,
}


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


class Embedding(Block):
    """A vector for every token.

    Args:
        num_embeddings: V, the size of the vocabulary.
        dims: D.
    """

    def __init__(self, *, num_embeddings: int, dims: int) -> None:
        super().__init__(None, dims)
        self.num_embeddings = num_embeddings
        self.table = embedding.Embedding(num_embeddings, dims)

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Block) -> mx.array:
        """Return the vectors (B, T, D) of tokens (B, T)."""
        return self.table(x)


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


class LMHead(Block):
    """Logits in float32, perhaps capped.

    Args:
        dims: D.
        num_embeddings: V, the size of the vocabulary.
        bias: whether the map has a bias.
        soft_cap: a, for a · tanh(logits / a); None: no cap.
        embedding: the name of an embedding whose weights are used (weight tying,
            arXiv 1608.05859) in place of own ones.
    """

    def __init__(
        self,
        *,
        dims: int,
        num_embeddings: int,
        bias: bool = False,
        soft_cap: float | None = None,
        embedding: str | None = None,
    ) -> None:
        super().__init__(dims, num_embeddings)
        if embedding is None:
            self.linear = linear.Linear(dims, num_embeddings, bias=bias)
        elif bias:
            raise ValueError("a head that is tied to an embedding has no bias")
        self._soft_cap = soft_cap

    @classmethod
    def borrowed(cls, spec: BlockSpec) -> tuple[str, ...]:
        """Return the embedding's name, if weights are tied."""
        name = spec.parameters.get("embedding")
        return () if name is None else (name,)

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Any) -> mx.array:
        """Map (B, T, D) to logits (B, T, V)."""
        logits = borrowed[0].table.as_linear(x) if borrowed else self.linear(x)
        logits = logits.astype(mx.float32)
        if self._soft_cap is None:
            return logits
        return mx.tanh(logits / self._soft_cap) * self._soft_cap


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
        """Normalize (B, T, D)."""
        return self.norm(x)


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
        """Normalize (B, T, D)."""
        if self._float32:
            return mx.fast.rms_norm(x, self.weight, self._eps)
        mean = mx.mean(mx.square(x), axis=-1, keepdims=True)
        return x * mx.rsqrt(mean + self._eps) * self.weight


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
            message = f"activation is {activation!r}; it can be {known}"
            raise invalid(message, "activation", activation, accepted=known)
        self.up_proj = linear.Linear(dims, hidden_dims, bias=bias)
        self.down_proj = linear.Linear(hidden_dims, dims, bias=bias)
        self._activation = activation

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Block) -> mx.array:
        """Map (B, T, D) to (B, T, D)."""
        hidden: mx.array = _ACTIVATIONS[self._activation](self.up_proj(x))
        return self.down_proj(hidden)


class SwiGLU(Block):
    """down(silu(gate(x)) · up(x)) (arXiv 2002.05202, eq. 6).

    Args:
        dims: D.
        hidden_dims: values that are gated.
        bias: whether the three layers have one.
    """

    def __init__(self, *, dims: int, hidden_dims: int, bias: bool = False) -> None:
        super().__init__(dims, dims)
        self.gate_proj = linear.Linear(dims, hidden_dims, bias=bias)
        self.up_proj = linear.Linear(dims, hidden_dims, bias=bias)
        self.down_proj = linear.Linear(hidden_dims, dims, bias=bias)

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Block) -> mx.array:
        """Map (B, T, D) to (B, T, D)."""
        return self.down_proj(self._gated(self.gate_proj(x), self.up_proj(x)))

    def _gated(self, gate: mx.array, up: mx.array) -> mx.array:
        return activations.silu(gate) * up
