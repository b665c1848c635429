"""Vectors to logits."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.linear import Linear

from cowmlx.networks.blocks.block import Block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.networks.wiring.declaration import BlockSpec


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
            self.linear = Linear(dims, num_embeddings, bias=bias)
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
