"""Single operations of a network by kernels: norms, rotary positions, attention, the mLSTM."""

from __future__ import annotations

import sys

import mlx.core as mx
from mlx.nn.layers.normalization import LayerNorm, RMSNorm
from mlx.nn.layers.positional_encoding import RoPE

from cowmlx.accelerate import names, operations
from cowmlx.modules import modules_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mlx.nn.layers.base import Module


class KernelRMSNorm(RMSNorm):
    """Takes the place of ``mlx.nn.RMSNorm``."""

    def __call__(self, x: mx.array) -> mx.array:
        """Norm (..., dims)."""
        return operations.rms_norm(x, self["weight"], self.eps)


class KernelLayerNorm(LayerNorm):
    """Takes the place of ``mlx.nn.LayerNorm``."""

    def __call__(self, x: mx.array) -> mx.array:
        """Norm (..., dims)."""
        return operations.layer_norm(x, self.get("weight"), self.get("bias"), self.eps)


class KernelRoPE(RoPE):
    """Takes the place of ``mlx.nn.RoPE``."""

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        """Rotate (B, ..., T, D)."""
        return operations.rope(
            x, self.dims, traditional=self.traditional, base=self.base, scale=self.scale,
            offset=offset,
        )  # fmt: skip


_KINDS: dict[type, type] = {
    RMSNorm: KernelRMSNorm,
    LayerNorm: KernelLayerNorm,
    RoPE: KernelRoPE,
}


def _kinds() -> dict[type, type]:
    """Return what takes whose place; a network has blocks of ours only once these are imported."""
    if "cowmlx.networks.blocks.simple" not in sys.modules:
        return _KINDS
    from cowmlx.accelerate.single_blocks import KINDS

    return _KINDS | KINDS


def replace(network: Module) -> None:
    """Let a network's modules, and the functions of mlx-lm that it calls, compute by kernels."""
    names.bind()
    kinds = _kinds()
    for module in modules_of(network):
        kind = kinds.get(type(module))
        if kind is not None:
            module.__class__ = kind


def restore(module: Module) -> None:
    """Make a module of its own kind again."""
    for plain, kind in _kinds().items():
        if type(module) is kind:
            module.__class__ = plain
