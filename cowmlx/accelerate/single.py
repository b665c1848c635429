"""Single operations of a network by kernels: norms, rotary positions, attention, the mLSTM."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.normalization import LayerNorm, RMSNorm
from mlx.nn.layers.positional_encoding import RoPE

from cowmlx.accelerate import kernels, names, operations
from cowmlx.networks.blocks.mlstm import FeedForward, MLSTMLayer, MultiHeadNorm
from cowmlx.networks.blocks.mlstm_cell import Inputs, State
from cowmlx.networks.blocks.rms_norm import RMSNorm as RMSNormBlock
from cowmlx.networks.blocks.swiglu import SwiGLU

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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


class KernelRMSNormBlock(RMSNormBlock):
    """Takes the place of ours."""

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Any) -> mx.array:
        """Normalise (B, T, D)."""
        if not self._float32:
            return super().__call__(x, state, *borrowed)
        return operations.rms_norm(x, self["weight"], self._eps)


class _Gated:
    """What our gated perceptrons have in common."""

    def _gated(self, gate: mx.array, up: mx.array) -> mx.array:
        made = operations.gated(gate, up, "silu")
        if made is not None:
            return made
        plain: mx.array = super()._gated(gate, up)  # type: ignore[misc]
        return plain


class KernelSwiGLU(_Gated, SwiGLU):
    """Takes the place of ours."""


class KernelFeedForward(_Gated, FeedForward):
    """Takes the place of the mLSTM's."""


class KernelMultiHeadNorm(MultiHeadNorm):
    """Takes the place of the mLSTM's."""

    def _normed(self, x: mx.array) -> mx.array:
        return operations.layer_norm(x, None, None, self._eps)


class KernelMLSTMLayer(MLSTMLayer):
    """Takes the place of ours, but for training: the kernel has no gradient."""

    def _recur(self, inputs: Inputs, before: State) -> tuple[mx.array, State]:
        if self.training or mx.default_device().type != mx.cpu:
            return super()._recur(inputs, before)
        hidden, *after = kernels.module().mlstm(*inputs, *before, eps=self._eps)
        return hidden, (after[0], after[1], after[2])


_KINDS: dict[type, type] = {
    RMSNorm: KernelRMSNorm,
    LayerNorm: KernelLayerNorm,
    RoPE: KernelRoPE,
    MLSTMLayer: KernelMLSTMLayer,
    MultiHeadNorm: KernelMultiHeadNorm,
    FeedForward: KernelFeedForward,
    RMSNormBlock: KernelRMSNormBlock,
    SwiGLU: KernelSwiGLU,
}
_PLAIN = {kind: plain for plain, kind in _KINDS.items()}


def replace(network: Module) -> None:
    """Let a network's modules, and the functions of mlx-lm that it calls, compute by kernels."""
    names.bind()
    for _, module in network.named_modules():
        kind = _KINDS.get(type(module))
        if kind is not None:
            module.__class__ = kind


def restore(module: Module) -> None:
    """Make a module of its own kind again."""
    plain = _PLAIN.get(type(module))
    if plain is not None:
        module.__class__ = plain
