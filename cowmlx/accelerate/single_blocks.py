"""Single operations of our own blocks by kernels: norms, gates, the mLSTM."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.accelerate import kernels, operations
from cowmlx.networks.blocks.mlstm import FeedForward, MLSTMLayer, MultiHeadNorm
from cowmlx.networks.blocks.mlstm_cell import Inputs, State
from cowmlx.networks.blocks.simple import RMSNorm, SwiGLU

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class KernelRMSNormBlock(RMSNorm):
    """Takes the place of ours."""

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Any) -> mx.array:
        """Normalize (B, T, D)."""
        if not self._float32:
            return super().__call__(x, state, *borrowed)
        return operations.rms_norm(x, self["weight"], self._eps)


class _Gated:
    """A gated MLP of ours."""

    def _gated(self, gate: mx.array, up: mx.array) -> mx.array:
        made = operations.gated(gate, up, getattr(self, "_activation", "silu"))
        if made is not None:
            return made
        plain: mx.array = super()._gated(gate, up)  # type: ignore[misc]
        return plain


class KernelSwiGLU(_Gated, SwiGLU):
    """Takes the place of ours."""


class KernelFeedForward(_Gated, FeedForward):
    """Takes the place of the mLSTM's and the sLSTM's."""


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


KINDS: dict[type, type] = {
    MLSTMLayer: KernelMLSTMLayer,
    MultiHeadNorm: KernelMultiHeadNorm,
    FeedForward: KernelFeedForward,
    RMSNorm: KernelRMSNormBlock,
    SwiGLU: KernelSwiGLU,
}
