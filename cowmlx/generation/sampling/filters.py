"""Samplers: the filters and the temperature between logits and a token, and their order.

A filter takes logits (B, V), float32, up to a constant for each row the logarithms of the
probabilities that an earlier filter left, and a number for each row, (B, 1); it returns the logits
with -inf for the tokens that it drops. No filter drops every token. No row depends on another, to
the last bit: sums whose rounding counts are cumulative ones, which every device adds up row by row.

:data:`SAMPLERS` is the only place that knows when a sampler is active, and in what order they run.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import mlx.core as mx

from cowmlx.generation.sampling.randomness import sample_coin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.sampling.sampler import SampleInput
    from cowmlx.models.model import Model

    Numbers = list[float]  # of one row
    Apply = Callable[["Candidates"], None]

# The least mass to ask a filter for: some devices flush smaller numbers to 0, a mass that no
# token is needed for.
LEAST_MASS = 1e-30
# The inverse of the least temperature that float32 can distinguish from greedy.
_LARGEST_SCALE = 1e30


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
    """Return (B, 1) the entropy of the tokens left, as a part of the largest for their number."""
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


class Candidates:
    """The logits of a batch's rows on their way through the samplers.

    Attributes:
        logits: (B, V) float32; -inf for tokens that were dropped.
        inputs: of the rows.
        scale: (B, 1) the inverse of the temperature that a sampler chose; None: none did.
        log_left: (B, 1) the logarithm of the mass that mirostat left, where the best token has a
            mass of 1; None without mirostat.
    """

    __slots__ = ("inputs", "log_left", "logits", "scale")

    def __init__(self, logits: mx.array, inputs: Sequence[SampleInput]) -> None:
        self.logits = logits
        self.inputs = inputs
        self.scale: mx.array | None = None
        self.log_left: mx.array | None = None


class SamplerKind(NamedTuple):
    """A row of :data:`SAMPLERS`.

    Attributes:
        name: of the kernel's sampler (``SAMPLERS`` in csrc/kernels/primitives/sample_row.cpp).
        option: the field of the params that switches it on, by any value but ``off``.
        off: see ``option``.
        make: takes the numbers of every row and returns what changes their candidates.
        numbers: the numbers of a generation, for ``make`` and for the kernel; None: its option.
    """

    name: str
    option: str
    off: float
    make: Callable[[Sequence[Numbers]], Apply]
    numbers: Callable[[GenerationParams, Model], Numbers] | None = None

    def active(self, params: GenerationParams) -> bool:
        """Whether a generation has this sampler; a greedy one has none."""
        return params.samples and getattr(params, self.option) != self.off

    def numbers_of(self, params: GenerationParams, model: Model) -> Numbers:
        """Return the numbers of a generation."""
        if self.numbers is None:
            return [getattr(params, self.option)]
        return self.numbers(params, model)


def column(numbers: Iterable[float]) -> mx.array:
    """Return (B, 1) a number for each row."""
    return mx.array([[number] for number in numbers], mx.float32)


def _filter(
    keep: Callable[[mx.array, mx.array], mx.array], least: float = -math.inf
) -> Callable[[Sequence[Numbers]], Apply]:
    """Return the ``make`` of a filter with one number per row, which is ``least`` or more."""

    def make(rows: Sequence[Numbers]) -> Apply:
        numbers = column(max(number, least) for (number,) in rows)

        def apply(on: Candidates) -> None:
            on.logits = keep(on.logits, numbers)

        return apply

    return make


def _xtc(rows: Sequence[Numbers]) -> Apply:
    spared = mx.array(rows[0][2:], mx.int32)

    def apply(on: Candidates) -> None:
        thresholds = [
            threshold
            if probability > sample_coin(each.sampler.params.seed, each.number)
            else math.inf
            for (probability, threshold, *_), each in zip(rows, on.inputs, strict=True)
        ]
        if min(thresholds) < math.inf:
            on.logits = exclude_top_choices(on.logits, column(thresholds), spared)

    return apply


def _xtc_numbers(params: GenerationParams, model: Model) -> Numbers:
    """Return the probability, the threshold and the spared tokens, ascending.

    Spared are end tokens and the line break, as in mlx-lm's server.
    """
    newline = model.tokenizer.encode_inner("\n", parse_special=False)
    spared = sorted({*model.end_tokens, *newline})
    known = [token for token in spared if 0 <= token < model.vocabulary_size]
    return [params.xtc_probability, params.xtc_threshold, *known]


def _top_k(rows: Sequence[Numbers]) -> Apply:
    top_k = [int(number) for (number,) in rows]

    def apply(on: Candidates) -> None:
        on.logits = keep_top_k(on.logits, top_k)

    return apply


def _dynatemp(rows: Sequence[Numbers]) -> Apply:
    lowest, highest, exponent = map(column, zip(*rows, strict=True))

    def apply(on: Candidates) -> None:
        part = mx.power(entropy_parts(on.logits), exponent)
        on.scale = mx.minimum(1 / (lowest + (highest - lowest) * part), _LARGEST_SCALE)

    return apply


def _dynatemp_numbers(params: GenerationParams, _: Model) -> Numbers:
    """Return the lowest and the highest temperature, and the exponent between them."""
    lowest = max(params.temperature - params.dynatemp_range, 0)
    return [lowest, params.temperature + params.dynatemp_range, params.dynatemp_exponent]


def _temperature(rows: Sequence[Numbers]) -> Apply:
    scale = column(number for (number,) in rows)

    def apply(on: Candidates) -> None:
        # The best one becomes 0, so that no logit overflows.
        logits = on.logits - mx.max(on.logits, axis=-1, keepdims=True)
        on.logits = logits * (scale if on.scale is None else on.scale)

    return apply


def _mirostat(rows: Sequence[Numbers]) -> Apply:
    def apply(on: Candidates) -> None:
        bits = column(each.surprise for each in on.inputs)
        on.logits, on.log_left = keep_unsurprising(on.logits, bits)

    return apply


# In the order in which they run, which is mlx-lm's.
SAMPLERS = (
    SamplerKind("top_n_sigma", "top_n_sigma", 0, _filter(keep_top_n_sigma)),
    SamplerKind("top_p", "top_p", 1, _filter(keep_top_p, LEAST_MASS)),
    SamplerKind("min_p", "min_p", 0, _filter(keep_min_p), lambda own, _: [math.log(own.min_p)]),
    SamplerKind("typical_p", "typical_p", 1, _filter(keep_typical, LEAST_MASS)),
    SamplerKind("xtc", "xtc_probability", 0, _xtc, _xtc_numbers),
    SamplerKind("top_k", "top_k", 0, _top_k),
    SamplerKind("dynatemp", "dynatemp_range", 0, _dynatemp, _dynatemp_numbers),
    SamplerKind(
        "temperature",
        "temperature",
        0,
        _temperature,
        lambda own, _: [min(1 / own.temperature, _LARGEST_SCALE)],
    ),
    SamplerKind("mirostat", "mirostat", 0, _mirostat, lambda *_: []),
)
