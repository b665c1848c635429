"""What tokens should be drawn from, in numpy, and whether draws are: knows nothing of mlx.

The order and the meaning of the options are those of the header.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

# The standard normal's 99.99 % quantile: with fixed seeds a test fails always or never.
QUANTILE = 3.719


def log_softmax(logits: Sequence[float]) -> np.ndarray:
    """Natural logarithms of the probabilities."""
    values = np.array(logits, np.float64)
    values -= values.max()
    return values - np.log(np.exp(values).sum())


def adjusted(logits: Sequence[float], sequence: Sequence[int], **options: Any) -> np.ndarray:
    """Logits after the bias and the penalties."""
    values = np.array(logits, np.float64)
    for token, bias in options.get("bias", {}).items():
        values[token] += bias
    penalty = options.get("repetition_penalty", 1)
    for token in set(window(sequence, options.get("repetition_window", 20))):
        values[token] = values[token] * penalty if values[token] < 0 else values[token] / penalty
    for token in set(window(sequence, options.get("presence_window", 20))):
        values[token] -= options.get("presence_penalty", 0)
    recent = window(sequence, options.get("frequency_window", 20))
    for token, count in Counter(recent).items():
        values[token] -= options.get("frequency_penalty", 0) * count
    if multiplier := options.get("dry_multiplier", 0):
        base, allowed = options.get("dry_base", 1.75), options.get("dry_allowed_length", 2)
        last_n = options.get("dry_penalty_last_n", -1)
        recent = sequence if last_n < 0 else window(sequence, last_n)
        for token, length in repeats(recent, allowed).items():
            values[token] -= multiplier * base ** (length - allowed)
    return values


def repeats(
    sequence: Sequence[int], shortest: int, breakers: Collection[int] = (), begin: int = 0
) -> dict[int, int]:
    """The longest run that each next token would continue, if it is long enough.

    Args:
        sequence: what is looked at.
        shortest: tokens of a run that counts.
        breakers: tokens that no run goes beyond, and that are never counted.
        begin: where the part begins in which the last tokens are a run.
    """
    last = len(sequence) - 1
    begin = max([begin] + [place + 1 for place, token in enumerate(sequence) if token in breakers])
    longest: dict[int, int] = {}
    for place in range(last):
        length = 0
        while (
            length <= min(place, last - begin)
            and sequence[place - length] == sequence[last - length]
        ):
            length += 1
        follower = sequence[place + 1]
        if length >= shortest and follower not in breakers:
            longest[follower] = max(length, longest.get(follower, 0))
    return longest


def window(sequence: Sequence[int], size: int) -> Sequence[int]:
    """The last tokens."""
    return sequence[max(0, len(sequence) - size) :]


def probabilities(
    logits: Sequence[float],
    sequence: Sequence[int] = (),
    *,
    allowed: Sequence[bool] | None = None,
    spared: Sequence[int] = (),
    **options: Any,
) -> np.ndarray:
    """The distribution of the next token; XTC happens in some of the draws only."""
    values = adjusted(logits, sequence, **options)
    if allowed is not None:
        values = np.where(allowed, values, -np.inf)
    chance = options.get("xtc_probability", 0)
    without = _filtered(values, options, None)
    return (
        without
        if chance == 0
        else chance * _filtered(values, options, spared) + (1 - chance) * without
    )


def _filtered(values: np.ndarray, options: dict[str, Any], spared: Any) -> np.ndarray:
    kept = np.isfinite(values)
    by_rank = np.argsort(-values, kind="stable")

    def mass() -> np.ndarray:
        weights = np.where(kept, np.exp(values - values.max()), 0)
        return weights / weights.sum()

    if n := options.get("top_n_sigma", 0):
        kept &= values >= values[kept].max() - n * values[kept].std()
    if (top_p := options.get("top_p", 1)) < 1:
        before = np.cumsum(mass()[by_rank]) - mass()[by_rank]
        kept[by_rank[before >= top_p]] = False
    if (min_p := options.get("min_p", 0)) > 0:
        kept &= mass() >= min_p * mass().max()
    if (typical_p := options.get("typical_p", 1)) < 1:
        share = mass()[kept]
        surprise = -np.log(share)
        entropy = (share * surprise).sum()
        order = np.argsort(abs(surprise - entropy), kind="stable")
        before = np.cumsum(share[order]) - share[order]
        kept[np.flatnonzero(kept)[order[before >= typical_p]]] = False
    if spared is not None:
        above = np.flatnonzero(mass() > options["xtc_threshold"])
        if len(above):
            least = mass()[above].min()
            dropped = [token for token in above if mass()[token] > least]
            kept[[token for token in dropped if token not in set(spared)]] = False
    if top_k := options.get("top_k", 0):
        ranked = [token for token in by_rank if kept[token]]
        kept[ranked[top_k:]] = False
    temperature = options["temperature"]
    if (span := options.get("dynatemp_range", 0)) and kept.sum() > 1:
        share = mass()[kept]
        share = share[share > 0]
        part = -(share * np.log(share)).sum() / np.log(kept.sum())
        low, high = max(temperature - span, 0), temperature + span
        temperature = low + (high - low) * part ** options.get("dynatemp_exponent", 1)
    scaled = np.where(kept, (values - values[kept].max()) / temperature, -np.inf)
    weights = np.exp(scaled)
    return weights / weights.sum()


def unsurprising(probabilities: np.ndarray, bits: float) -> np.ndarray:
    """What mirostat leaves of a distribution: the best, and what is at most so surprising."""
    kept = probabilities >= min(2.0**-bits, probabilities.max())
    left = np.where(kept, probabilities, 0)
    return left / left.sum()


def check(counts: np.ndarray, expected: np.ndarray) -> None:
    """Fail unless counted draws fit a distribution."""
    draws = counts.sum()
    assert counts[expected == 0].sum() == 0, "a token that the filters drop was drawn"

    # Rare tokens go together, so that every class is expected at least 5 times.
    common = expected * draws >= 5
    classes = [*expected[common], expected[~common].sum()]
    seen = [*counts[common], counts[~common].sum()]
    pairs = [(c * draws, s) for c, s in zip(classes, seen, strict=True) if c * draws >= 1]
    assert len(pairs) > 1, "one possible token shows nothing"
    chi_square = sum((s - c) ** 2 / c for c, s in pairs)
    freedom = len(pairs) - 1
    # The quantile of chi-square, as Wilson and Hilferty approximate it.
    limit = freedom * (1 - 2 / (9 * freedom) + QUANTILE * (2 / (9 * freedom)) ** 0.5) ** 3
    assert chi_square < limit

    # A wrong temperature shows first in how probable the drawn tokens are.
    possible = expected > 0
    surprise = np.log(expected[possible])
    mean = (expected[possible] * surprise).sum()
    deviation = ((expected[possible] * (surprise - mean) ** 2).sum() / draws) ** 0.5
    drawn_mean = (counts[possible] * surprise).sum() / draws
    assert abs(drawn_mean - mean) <= QUANTILE * deviation + 1e-9
