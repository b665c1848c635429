"""Filters: which tokens a draw may choose, by their probabilities at temperature 1.

Each takes logits (1, V), up to a constant the logarithms of what an earlier filter left, and
returns them with -inf for the tokens it drops. None of them drops every token. float32.
"""

from __future__ import annotations

import math

import mlx.core as mx

# Some devices flush smaller numbers to 0, which would be a mass that no token is needed for.
_LEAST_MASS = 1e-30


def normalized(logits: mx.array) -> mx.array:
    """Return the logarithms of the probabilities."""
    logits = logits - mx.max(logits, axis=-1, keepdims=True)
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def keep_top_p(logits: mx.array, top_p: float) -> mx.array:
    """Drop the tokens outside the smallest set whose mass reaches ``top_p`` (arXiv 1904.09751).

    Tokens as probable as the last one of the set stay too.
    """
    logprobs = normalized(logits)
    ordered = mx.sort(logprobs, axis=-1)
    probabilities = mx.exp(ordered)
    above = mx.cumsum(probabilities, axis=-1, reverse=True, inclusive=False)
    total = above[..., :1] + probabilities[..., :1]
    dropped = (above >= max(top_p, _LEAST_MASS) * total).sum(axis=-1, keepdims=True)
    threshold = mx.take_along_axis(ordered, dropped, axis=-1)
    return mx.where(logprobs < threshold, -math.inf, logprobs)


def keep_min_p(logits: mx.array, min_p: float) -> mx.array:
    """Drop tokens less probable than ``min_p`` times the best one (arXiv 2407.01082)."""
    threshold = mx.max(logits, axis=-1, keepdims=True) + math.log(min_p)
    return mx.where(logits < threshold, -math.inf, logits)


def keep_typical(logits: mx.array, typical_p: float) -> mx.array:
    """Drop all but the most typical tokens, those whose mass reaches ``typical_p``.

    Locally typical sampling (arXiv 2202.00666, equation 9): the nearer a token's surprise,
    -log p, is to the entropy, the mean surprise, the more typical it is. Tokens as typical as
    the last one of the set stay too.
    """
    logprobs = normalized(logits)
    probabilities = mx.exp(logprobs)
    surprise = mx.where(probabilities > 0, -logprobs, 0)  # 0 * inf would be no number
    entropy = (probabilities * surprise).sum(axis=-1, keepdims=True)
    distance = mx.abs(logprobs + entropy)
    order = mx.argsort(distance, axis=-1)
    ordered = mx.take_along_axis(probabilities, order, axis=-1)
    before = mx.cumsum(ordered, axis=-1, inclusive=False)
    kept = (before < max(typical_p, _LEAST_MASS)).sum(axis=-1, keepdims=True)
    last = mx.take_along_axis(order, kept - 1, axis=-1)
    threshold = mx.take_along_axis(distance, last, axis=-1)
    return mx.where(distance > threshold, -math.inf, logprobs)


def exclude_top_choices(logits: mx.array, threshold: float, spared: mx.array) -> mx.array:
    """Drop the tokens more probable than ``threshold``, but for the least probable of them (XTC).

    Args:
        logits: (1, V).
        threshold: at most 0.5; where fewer than two tokens are above it, nothing is dropped.
        spared: (N,) tokens that are never dropped.
    """
    probabilities = mx.softmax(logits, axis=-1)
    above = mx.where(probabilities > threshold, probabilities, math.inf)
    dropped = probabilities > mx.min(above, axis=-1, keepdims=True)
    if spared.size:
        dropped = mx.put_along_axis(dropped, spared[None], mx.array(False), axis=-1)
    return mx.where(dropped, -math.inf, logits)


def keep_top_k(logits: mx.array, top_k: int) -> mx.array:
    """Drop all but the ``top_k`` most probable tokens."""
    if top_k >= logits.shape[-1]:
        return logits
    rest = mx.argpartition(-logits, kth=top_k - 1, axis=-1)[..., top_k:]
    return mx.put_along_axis(logits, rest, mx.array(-math.inf, logits.dtype), axis=-1)
