"""Pixtral's vision tower (arXiv 2410.07073): a transformer with rotary positions of two axes."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.normalization import RMSNorm

from cowmlx.networks.encoders.layers import Activation, Attend
from cowmlx.vision.turns import parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

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

    def __call__(self, x: mx.array) -> mx.array:
        """Turn x (1, H, N, head)."""
        first, second = mx.split(x, 2, axis=-1)
        cosines, sines = self.cosines.astype(x.dtype), self.sines.astype(x.dtype)
        turned = [first * cosines - second * sines, second * cosines + first * sines]
        return mx.concatenate(turned, axis=-1)


class PixtralLayer(Module):
    """Attention and a gated MLP, each behind a norm.

    Args:
        options: of the tower.
    """

    def __init__(self, options: PixtralOptions) -> None:
        super().__init__()
        dims, mlp = options.dims, options.mlp
        self.heads = options.heads
        self.attention_norm, self.ffn_norm = RMSNorm(dims, _EPS), RMSNorm(dims, _EPS)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            Linear(dims, dims, bias=False) for _ in range(4)
        )
        self.attend = Attend(options.head**-0.5)
        self.gate_proj, self.up_proj = (Linear(dims, mlp, bias=False) for _ in range(2))
        self.down_proj = Linear(mlp, dims, bias=False)
        self.activation = Activation(options.activation)
        self._mlp = 3 * dims * mlp

    def steps(self, x: mx.array, turned: Turned) -> Generator[None, None, mx.array]:
        """Return the layer's result for (N, D), yielding between bounded parts."""
        count, dims = x.shape
        projected = []
        for part in parts(count, 3 * dims * dims):
            normed = self.attention_norm(x[part])
            projected.append([self.q_proj(normed), self.k_proj(normed), self.v_proj(normed)])
            mx.eval(projected[-1])
            yield
        q, k, v = (self._split(mx.concatenate(list(own))) for own in zip(*projected, strict=True))
        q, k = turned(q), turned(k)
        mx.eval(q, k)
        attended = []
        for part in parts(count, 2 * count * dims + dims * dims):
            own = self.attend(q[:, :, part], k, v)
            joined = own.transpose(0, 2, 1, 3).reshape(-1, dims)
            attended.append(x[part] + self.o_proj(joined))
            mx.eval(attended[-1])
            yield
        x, made = mx.concatenate(attended), []
        for part in parts(count, self._mlp):
            own = self.ffn_norm(x[part])
            gated = self.activation(self.gate_proj(own), self.up_proj(own))
            made.append(x[part] + self.down_proj(gated))
            mx.eval(made[-1])
            yield
        return mx.concatenate(made)

    def _split(self, x: mx.array) -> mx.array:
        return x.reshape(1, x.shape[0], self.heads, -1).transpose(0, 2, 1, 3)


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
        self, patches: mx.array, rows: int, columns: int, count: int
    ) -> Generator[None, None, mx.array]:
        """Return the hidden states (N, D) of patches, yielding between bounded parts.

        Args:
            patches: (N, P).
            rows: of them.
            columns: of them.
            count: layers that they go through.
        """
        x = self.ln_pre(self.patch_conv(patches))
        turned = Turned.of(rows, columns, self._options)
        mx.eval(x, *turned)
        yield
        for layer in self.layers[:count]:
            x = yield from layer.steps(x, turned)
        return x
