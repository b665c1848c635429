"""SigLIP's vision tower (arXiv 2303.15343): a transformer over the patches of an image."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.normalization import LayerNorm

from cowmlx.networks.encoders.layers import Activation, Attend
from cowmlx.vision.turns import parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator


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
    channels: int = 3

    @property
    def side(self) -> int:
        """Patches of a side."""
        return self.image // self.patch


class SiglipLayer(Module):
    """Attention and an MLP, each behind a norm.

    Args:
        options: of the tower.
    """

    def __init__(self, options: SiglipOptions) -> None:
        super().__init__()
        dims = options.dims
        self.heads = options.heads
        self.layer_norm1 = LayerNorm(dims, options.eps)
        self.layer_norm2 = LayerNorm(dims, options.eps)
        self.q_proj, self.k_proj = Linear(dims, dims), Linear(dims, dims)
        self.v_proj, self.out_proj = Linear(dims, dims), Linear(dims, dims)
        self.attend = Attend((dims // options.heads) ** -0.5)
        self.fc1, self.fc2 = Linear(dims, options.mlp), Linear(options.mlp, dims)
        self.activation = Activation(options.activation)
        self._mlp = 2 * dims * options.mlp

    def steps(self, x: mx.array) -> Generator[None, None, mx.array]:
        """Return the layer's result for (N, D), yielding between bounded parts."""
        count, dims = x.shape
        projected = []
        for part in parts(count, 3 * dims * dims):
            normed = self.layer_norm1(x[part])
            projected.append([self.q_proj(normed), self.k_proj(normed), self.v_proj(normed)])
            mx.eval(projected[-1])
            yield
        q, k, v = (self._split(mx.concatenate(list(own))) for own in zip(*projected, strict=True))
        attended = []
        for part in parts(count, 2 * count * dims + dims * dims):
            own = self.attend(q[:, :, part], k, v)
            joined = own.transpose(0, 2, 1, 3).reshape(-1, dims)
            attended.append(x[part] + self.out_proj(joined))
            mx.eval(attended[-1])
            yield
        x, made = mx.concatenate(attended), []
        for part in parts(count, self._mlp):
            own = self.fc1(self.layer_norm2(x[part]))
            made.append(x[part] + self.fc2(self.activation(own)))
            mx.eval(made[-1])
            yield
        return mx.concatenate(made)

    def _split(self, x: mx.array) -> mx.array:
        return x.reshape(1, x.shape[0], self.heads, -1).transpose(0, 2, 1, 3)


class Siglip(Module):
    """The tower.

    Args:
        options: its sizes.
    """

    def __init__(self, options: SiglipOptions) -> None:
        super().__init__()
        self._known = options.side**2
        pixels = options.channels * options.patch**2
        self.patch_embedding = Linear(pixels, options.dims)
        self.position_embedding = Embedding(self._known, options.dims)
        self.layers = [SiglipLayer(options) for _ in range(options.layers)]
        self.post_layernorm = LayerNorm(options.dims, options.eps)

    @property
    def positions(self) -> mx.array:
        """The embeddings (side², D) of all positions that the tower was trained with, lazily."""
        return self.position_embedding(mx.arange(self._known))

    def steps(
        self, patches: mx.array, positions: mx.array | None = None
    ) -> Generator[None, None, mx.array]:
        """Return the hidden states (N, D) of patches, yielding between bounded parts.

        Args:
            patches: (N, P).
            positions: their embeddings, (N, D); None: all that there are, in order.
        """
        own = self.positions if positions is None else positions
        x = self.patch_embedding(patches) + own
        mx.eval(x)
        yield
        for layer in self.layers:
            x = yield from layer.steps(x)
        x = self.post_layernorm(x)
        mx.eval(x)
        return x
