"""Filters: which tokens draws may choose, by their probabilities at temperature 1.

Each takes logits (B, V), up to a constant for each row the logarithms of what an earlier filter
left, and a number for each row, (B, 1); it returns the logits with -inf for the tokens it drops.
None of them drops every token. float32. No row depends on another, to the last bit: sums whose
rounding counts are cumulative ones, which every device adds up row by row.
"""

from __future__ import annotations

import math

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# The least mass to ask a filter for: some devices flush smaller numbers to 0, a mass that no
# token is needed for.
LEAST_MASS = 1e-30


def normalized(logits: mx.array) -> mx.array:
    """Return the logarithms of the probabilities."""
    logits = logits - mx.max(logits, axis=-1, keepdims=True)
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def keep_top_n_sigma(logits: mx.array, n: mx.array) -> mx.array:
    """Drop tokens whose logit is more than ``n`` standard deviations below the best (2411.07641).

    Tokens that were dropped before do not count.
    """
    below = mx.max(logits, axis=-1, keepdims=True) - logits
    real = below < math.inf
    below = mx.where(real, below, 0)
    largest = mx.max(below, axis=-1, keepdims=True)
    parts = below / mx.where(largest > 0, largest, 1)  # whose squares do not overflow
    count = real.sum(axis=-1, keepdims=True)
    mean = mx.cumsum(parts, axis=-1)[..., -1:] / count
    squares = mx.where(real, mx.square(parts - mean), 0)
    sigma = mx.sqrt(mx.cumsum(squares, axis=-1)[..., -1:] / count) * largest
    threshold = mx.max(logits, axis=-1, keepdims=True) - n * sigma
    return mx.where(logits < threshold, -math.inf, logits)


def keep_top_p(logits: mx.array, top_p: mx.array) -> mx.array:
    """Drop the tokens outside the smallest set whose mass reaches ``top_p`` (arXiv 1904.09751).

    Tokens as probable as the last one of the set stay too.
    """
    logprobs = normalized(logits)
    ordered = mx.sort(logprobs, axis=-1)
    probabilities = mx.exp(ordered)
    above = mx.cumsum(probabilities, axis=-1, reverse=True, inclusive=False)
    total = above[..., :1] + probabilities[..., :1]
    dropped = (above >= top_p * total).sum(axis=-1, keepdims=True)
    threshold = mx.take_along_axis(ordered, dropped, axis=-1)
    return mx.where(logprobs < threshold, -math.inf, logprobs)


def keep_min_p(logits: mx.array, log_min_p: mx.array) -> mx.array:
    """Drop tokens less probable than ``min_p`` times the best one (arXiv 2407.01082)."""
    threshold = mx.max(logits, axis=-1, keepdims=True) + log_min_p
    return mx.where(logits < threshold, -math.inf, logits)


def keep_typical(logits: mx.array, typical_p: mx.array) -> mx.array:
    """Drop all but the most typical tokens, those whose mass reaches ``typical_p``.

    Locally typical sampling (arXiv 2202.00666, equation 9): the nearer a token's surprise,
    -log p, is to the entropy, the mean surprise, the more typical it is. Tokens as typical as
    the last one of the set stay too.
    """
    logprobs = normalized(logits)
    probabilities = mx.exp(logprobs)
    surprise = mx.where(probabilities > 0, -logprobs, 0)  # 0 * inf would be no number
    entropy = mx.cumsum(probabilities * surprise, axis=-1)[..., -1:]
    distance = mx.abs(logprobs + entropy)
    order = mx.argsort(distance, axis=-1)
    ordered = mx.take_along_axis(probabilities, order, axis=-1)
    before = mx.cumsum(ordered, axis=-1, inclusive=False)
    kept = (before < typical_p).sum(axis=-1, keepdims=True)
    last = mx.take_along_axis(order, kept - 1, axis=-1)
    threshold = mx.take_along_axis(distance, last, axis=-1)
    return mx.where(distance > threshold, -math.inf, logprobs)


def exclude_top_choices(logits: mx.array, threshold: mx.array, spared: mx.array) -> mx.array:
    """Drop the tokens more probable than ``threshold``, but for the least probable of them (XTC).

    Args:
        logits: (B, V).
        threshold: (B, 1); where fewer than two tokens are above it, nothing is dropped.
        spared: (N,) tokens that are never dropped.
    """
    probabilities = mx.softmax(logits, axis=-1)
    above = mx.where(probabilities > threshold, probabilities, math.inf)
    dropped = probabilities > mx.min(above, axis=-1, keepdims=True)
    if spared.size:
        dropped = mx.put_along_axis(dropped, spared[None], mx.array(False), axis=-1)
    return mx.where(dropped, -math.inf, logits)


def keep_unsurprising(logits: mx.array, bits: mx.array) -> tuple[mx.array, mx.array]:
    """Drop the tokens whose surprise, in bits, is above ``bits``, but the best (arXiv 2007.14966).

    Args:
        logits: (B, V), with the temperature.
        bits: (B, 1).
    Returns:
        the logits (B, V), 0 for the best, and the logarithm (B, 1) of the mass that is left, where
        the best one has a mass of 1.
    """
    logits = logits - mx.max(logits, axis=-1, keepdims=True)
    log_total = mx.log(mx.cumsum(mx.exp(logits), axis=-1)[..., -1:])
    least = mx.minimum(log_total - bits * math.log(2), 0)
    logits = mx.where(logits < least, -math.inf, logits)
    return logits, mx.log(mx.cumsum(mx.exp(logits), axis=-1)[..., -1:])


def entropy_parts(logits: mx.array) -> mx.array:
    """Return (B, 1) what part of the greatest entropy of so many tokens the tokens left have."""
    logits = logits - mx.max(logits, axis=-1, keepdims=True)
    masses = mx.exp(logits)
    total = mx.cumsum(masses, axis=-1)[..., -1:]
    weighed = mx.where(masses > 0, -masses * logits, 0)  # 0 * inf would be no number
    entropy = mx.cumsum(weighed, axis=-1)[..., -1:] / total + mx.log(total)
    count = (logits > -math.inf).sum(axis=-1, keepdims=True)
    return mx.clip(entropy / mx.log(mx.maximum(count, 2).astype(mx.float32)), 0, 1)


def keep_top_k(logits: mx.array, top_k: Sequence[int]) -> mx.array:
    """Drop all but a row's ``top_k`` most probable tokens; among equals the first ones stay."""
    size = logits.shape[-1]
    if min(top_k) >= size:
        return logits
    top_k = [min(own, size) for own in top_k]
    most = max(top_k)
    best = mx.topk(logits, most, axis=-1)
    if min(top_k) == most:
        threshold = mx.min(best, axis=-1, keepdims=True)
    else:
        places = mx.array([[most - own] for own in top_k])
        threshold = mx.take_along_axis(mx.sort(best, axis=-1), places, axis=-1)
    above, equal = logits > threshold, logits == threshold
    room = mx.array(top_k)[:, None] - above.sum(axis=-1, keepdims=True)
    kept = above | (equal & (mx.cumsum(equal.astype(mx.int32), axis=-1) <= room))
    return mx.where(kept, logits, -math.inf)
