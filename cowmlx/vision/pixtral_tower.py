"""Pixtral's vision tower (arXiv 2410.07073): a transformer with rotary positions of two axes."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.normalization import RMSNorm

from cowmlx.networks.encoders.layers import Activation
from cowmlx.vision.tower_layer import TowerLayer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from cowmlx.vision.turns import Turns

_EPS = 1e-5
_AXES = 2


class PixtralOptions(NamedTuple):
    """The sizes of a tower."""

    dims: int
    layers: int
    heads: int
    mlp: int
    patch: int
    activation: str
    base: float

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.dims // self.heads


class Turned(NamedTuple):
    """The cosines and sines of the angles (N, head / 2) by which patches are turned."""

    cosines: mx.array
    sines: mx.array

    @classmethod
    def of(cls, rows: int, columns: int, options: PixtralOptions) -> Turned:
        """Return those of a grid.

        Even frequencies turn by the row, odd ones by the column.
        """
        head = options.head
        powers = mx.arange(0, head, 2).astype(mx.float32) / head
        frequencies = 1.0 / mx.array(options.base, mx.float32) ** powers
        down = mx.arange(rows).astype(mx.float32)[:, None] * frequencies[::2]
        across = mx.arange(columns).astype(mx.float32)[:, None] * frequencies[1::2]
        shape = rows, columns, head // (2 * _AXES)
        both = [mx.broadcast_to(down[:, None], shape), mx.broadcast_to(across[None], shape)]
        angles = mx.concatenate(both, axis=-1).reshape(rows * columns, -1)
        return cls(mx.cos(angles), mx.sin(angles))

    def rotated(self, x: mx.array, part: slice) -> mx.array:
        """Return x (N, H, head) of a slice of the patches, with their positions."""
        first, second = mx.split(x, 2, axis=-1)
        cosines, sines = (own[part, None].astype(x.dtype) for own in self)
        turned = [first * cosines - second * sines, second * cosines + first * sines]
        return mx.concatenate(turned, axis=-1)


class PixtralLayer(TowerLayer):
    """Attention and a gated MLP, each behind a norm.

    Args:
        options: of the tower.
    """

    def __init__(self, options: PixtralOptions) -> None:
        dims, mlp = options.dims, options.mlp
        super().__init__(dims, options.heads, 3 * dims * mlp)
        self.attention_norm, self.ffn_norm = RMSNorm(dims, _EPS), RMSNorm(dims, _EPS)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            Linear(dims, dims, bias=False) for _ in range(4)
        )
        self.gate_proj, self.up_proj = (Linear(dims, mlp, bias=False) for _ in range(2))
        self.down_proj = Linear(mlp, dims, bias=False)
        self.activation = Activation(options.activation)

    def projections(self, x: mx.array) -> list[mx.array]:
        """Return the queries, keys and values of patches."""
        normed = self.attention_norm(x)
        return [self.q_proj(normed), self.k_proj(normed), self.v_proj(normed)]

    def output(self, x: mx.array) -> mx.array:
        """Return the output projection."""
        return self.o_proj(x)

    def mlp(self, x: mx.array) -> mx.array:
        """Return the MLP's result."""
        normed = self.ffn_norm(x)
        return self.down_proj(self.activation(self.gate_proj(normed), self.up_proj(normed)))


class Pixtral(Module):
    """The tower.

    Args:
        options: its sizes.
    """

    def __init__(self, options: PixtralOptions) -> None:
        super().__init__()
        self._options = options
        self.patch_conv = Linear(3 * options.patch**2, options.dims, bias=False)
        self.ln_pre = RMSNorm(options.dims, _EPS)
        self.layers = [PixtralLayer(options) for _ in range(options.layers)]

    def steps(
        self, patches: mx.array, rows: int, columns: int, count: int, turns: Turns
    ) -> Generator[None, None, mx.array]:
        """Return the hidden states (N, D) of patches, yielding between bounded parts.

        Args:
            patches: (N, P).
            rows: of them.
            columns: of them.
            count: layers that they go through.
            turns: of the work.
        """
        x = yield from turns.joined(
            lambda part: self.ln_pre(self.patch_conv(patches[part])),
            len(patches),
            patches.shape[1] * self._options.dims,
        )
        turned = Turned.of(rows, columns, self._options)
        mx.eval(*turned)
        for layer in self.layers[:count]:
            x = yield from layer.steps(x, turns, turned.rotated)
        return x
