"""SigLIP's vision tower (arXiv 2303.15343): a transformer over the patches of an image."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.normalization import LayerNorm

from cowmlx.networks.encoders.layers import Activation
from cowmlx.vision.tower_layer import TowerLayer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from cowmlx.vision.turns import Turns


_CHANNELS = 3


class SiglipOptions(NamedTuple):
    """The sizes of a tower."""

    dims: int
    layers: int
    heads: int
    mlp: int
    patch: int
    image: int
    eps: float
    activation: str

    @property
    def side(self) -> int:
        """Patches of a side."""
        return self.image // self.patch


class SiglipLayer(TowerLayer):
    """Attention and an MLP, each behind a norm.

    Args:
        options: of the tower.
    """

    def __init__(self, options: SiglipOptions) -> None:
        dims = options.dims
        super().__init__(dims, options.heads, 2 * dims * options.mlp)
        self.layer_norm1 = LayerNorm(dims, options.eps)
        self.layer_norm2 = LayerNorm(dims, options.eps)
        self.q_proj, self.k_proj = Linear(dims, dims), Linear(dims, dims)
        self.v_proj, self.out_proj = Linear(dims, dims), Linear(dims, dims)
        self.fc1, self.fc2 = Linear(dims, options.mlp), Linear(options.mlp, dims)
        self.activation = Activation(options.activation)

    def projections(self, x: mx.array) -> list[mx.array]:
        """Return the queries, keys and values of patches."""
        normed = self.layer_norm1(x)
        return [self.q_proj(normed), self.k_proj(normed), self.v_proj(normed)]

    def output(self, x: mx.array) -> mx.array:
        """Return the output projection."""
        return self.out_proj(x)

    def mlp(self, x: mx.array) -> mx.array:
        """Return the MLP's result."""
        return self.fc2(self.activation(self.fc1(self.layer_norm2(x))))


class Siglip(Module):
    """The tower.

    Args:
        options: its sizes.
    """

    def __init__(self, options: SiglipOptions) -> None:
        super().__init__()
        self._known = options.side**2
        self.patch_embedding = Linear(_CHANNELS * options.patch**2, options.dims)
        self.position_embedding = Embedding(self._known, options.dims)
        self.layers = [SiglipLayer(options) for _ in range(options.layers)]
        self.post_layernorm = LayerNorm(options.dims, options.eps)

    @property
    def positions(self) -> mx.array:
        """The embeddings (side², D) of all positions that the tower was trained with, lazily."""
        return self.position_embedding(mx.arange(self._known))

    def steps(
        self, patches: mx.array, turns: Turns, positions: mx.array | None = None
    ) -> Generator[None, None, mx.array]:
        """Return the hidden states (N, D) of patches, yielding between bounded parts.

        Args:
            patches: (N, P).
            turns: of the work.
            positions: their embeddings, (N, D); None: all that there are, in order.
        """
        own = self.positions if positions is None else positions
        x = yield from turns.joined(
            lambda part: self.patch_embedding(patches[part]) + own[part],
            len(patches),
            patches.shape[1] * own.shape[1],
        )
        for layer in self.layers:
            x = yield from layer.steps(x, turns)
        x = self.post_layernorm(x)
        mx.eval(x)
        yield
        return x
