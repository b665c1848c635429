"""Tokens to vectors."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers import embedding

from cowmlx.networks.blocks.block import Block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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
