"""The loss of a language model: how improbable it finds the tokens that follow."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.accelerate import trained

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mlx.nn.layers.base import Module


class TokenBatch:
    """Rows of tokens, filled up on the right, and which of them are to be learnt.

    Attributes:
        tokens: (B, T) int32.
        targets: (B, T) bool: whether the loss counts how well a token is predicted from those
            before it; never true for the first of a row.
    """

    __slots__ = ("targets", "tokens")

    def __init__(self, tokens: mx.array, targets: mx.array) -> None:
        self.tokens = tokens
        self.targets = targets


def logits_of(network: Module, batch: TokenBatch) -> mx.array:
    """Return float32 (B, T - 1, V): the logits of every token but the first."""
    logits: mx.array = network(batch.tokens[:, :-1])
    return logits.astype(mx.float32)


def cross_entropy(logits: mx.array, batch: TokenBatch) -> mx.array:
    """Return (B, T - 1) float32: minus the log-probability of each token but the first."""
    if trained.takes(logits):
        return trained.cross_entropy(logits, batch.tokens[:, 1:])
    wanted = batch.tokens[:, 1:, None]
    chosen = mx.take_along_axis(logits, wanted, axis=-1).squeeze(-1)
    return mx.logsumexp(logits, axis=-1) - chosen


def summed(losses: mx.array, batch: TokenBatch) -> tuple[mx.array, mx.array]:
    """Return the sum of the losses of targets, float32, and how many there are, both ()."""
    mask = batch.targets[:, 1:]
    # Not by a product: what is no number behind a row's end must not reach the sum.
    return mx.where(mask, losses, 0).sum(), mask.sum()


def right(logits: mx.array, batch: TokenBatch) -> mx.array:
    """Return how many targets are the most probable token, ()."""
    hit = mx.argmax(logits, axis=-1) == batch.tokens[:, 1:]
    return mx.logical_and(hit, batch.targets[:, 1:]).sum()
