"""Heads of classifiers: a score for each label of a text, or of each token."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.normalization import LayerNorm

from cowmlx.networks.encoders.layers import Activation, Texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.networks.encoders.options import Labels


class ClassificationHead(Module):
    """Maps hidden states to scores.

    Args:
        dims: D.
        labels: what is scored.
        activation: of the layer before the last; None if there is no such layer.
        bias: whether that layer has one.
        norm: eps of a norm behind the activation; None without one.
        mean: whether the mean of all tokens is scored, and not the first one.
    """

    def __init__(
        self,
        dims: int,
        labels: Labels,
        activation: str | None,
        *,
        bias: bool = True,
        norm: float | None = None,
        norm_bias: bool = True,
        mean: bool = False,
    ) -> None:
        super().__init__()
        self.of_tokens, self.mean = labels.of_tokens, mean
        if activation is not None:
            self.dense = Linear(dims, dims, bias=bias)
            self.activation = Activation(activation)
        if norm is not None:
            self.norm = LayerNorm(dims, norm, bias=norm_bias)
        self.out = Linear(dims, len(labels.names))

    def __call__(self, hidden: mx.array, texts: Texts) -> mx.array:
        """Return float32 scores (B, labels), or (N, labels) of tokens."""
        x = hidden if self.of_tokens else self._pooled(hidden, texts)
        if "dense" in self:
            x = self.activation(self.dense(x))
        if "norm" in self:
            x = self.norm(x)
        return self.out(x).astype(mx.float32)

    def _pooled(self, hidden: mx.array, texts: Texts) -> mx.array:
        if not self.mean:
            return hidden[mx.array(texts.starts)]
        parts = [
            hidden[group.start : group.end].reshape(group.texts, group.length, -1).mean(axis=1)
            for group in texts.groups
        ]
        return mx.concatenate(parts)
