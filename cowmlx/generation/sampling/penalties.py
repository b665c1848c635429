"""Bias, penalties and DRY, which change logits before filters and sampling."""

from __future__ import annotations

import math
import sys
from itertools import groupby

import mlx.core as mx

from cowmlx.generation.sampling.repeats import Breakers, Repeats
from cowmlx.generation.sampling.samples import Sample, stacked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.sampling.sampler import SampleInput
    from cowmlx.models.model import Model

    Item = TypeVar("Item")
    Penalty = Callable[[mx.array, "_Recent"], mx.array]

# Bounds of terms and factors, which keep logits from overflowing; far smaller ones decide already.
_LARGEST_TERM = 1e24
_LARGEST_FACTOR = 1e12
_LARGEST_POWER = 100.0


class Penalties:
    """A bias, then the repetition, presence and frequency penalties, then DRY, of one generation.

    Each looks back on a window: the last tokens of the whole sequence.

    Args:
        params: of the generation.
        model: whose tokens sequence breakers are found in.

    Attributes:
        any: whether there are any at all.
        dry: whether DRY is one: then the last token has to be known.
        forbids: whether the bias forbids tokens.
        steps: window, name and number of each penalty, in order.
        kind: equal for generations whose rows share operations.
    """

    def __init__(self, params: GenerationParams, model: Model) -> None:
        self.forbids = -math.inf in params.bias.values()
        self.biased = list(params.bias)
        self.bias = [
            _bounded(value) if value > -math.inf else value for value in params.bias.values()
        ]
        factor = min(max(params.repetition_penalty, 1 / _LARGEST_FACTOR), _LARGEST_FACTOR)
        presence, frequency = _bounded(params.presence_penalty), _bounded(params.frequency_penalty)
        self.steps = [
            step
            for step, on in (
                ((params.repetition_window, "repetition", factor), factor != 1),
                ((params.presence_window, "presence", presence), bool(presence)),
                ((params.frequency_window, "frequency", frequency), bool(frequency)),
            )
            if on
        ]
        self.dry = params.dry_multiplier > 0
        self._params = params
        self._repeats: Repeats | None = None
        if self.dry:
            window = params.dry_penalty_last_n if params.dry_penalty_last_n > 0 else sys.maxsize
            breakers = Breakers(params.dry_sequence_breakers, model.tokenizer.token_bytes)
            # Rejected drafts are taken back.
            back = params.draft_tokens
            self._repeats = Repeats(params.dry_allowed_length, window, breakers, back)
        self.any = bool(params.bias or self.steps or self.dry)
        windows = groupby(self.steps, key=lambda step: step[0])
        self.kind = (
            bool(params.bias),
            tuple(tuple(name for _, name, _ in own) for _, own in windows),
            self.dry,
        )

    def dry_terms(self, each: SampleInput) -> list[tuple[int, float]]:
        """Return the tokens that DRY makes less probable, with the terms it subtracts."""
        if self._repeats is None:
            return []
        params = self._params
        terms = []
        for token, length in self._repeats.after(each.whole).items():
            power = (length - params.dry_allowed_length) * math.log(params.dry_base)
            term = params.dry_multiplier * math.exp(min(power, _LARGEST_POWER))
            terms.append((token, min(term, _LARGEST_TERM)))
        return terms


class RowPenalties:
    """Penalties of one kind, for the rows of a batch."""

    def __init__(self, rows: Sequence[Penalties]) -> None:
        self._biased: mx.array | None = None
        if rows[0].biased:
            # A token that occurs twice is written twice, with the same value.
            self._biased = mx.array(_padded([row.biased for row in rows], 0), mx.int32)
            self._bias = mx.array(_padded([row.bias for row in rows], 0.0), mx.float32)
        # For each window: its size in every row, and the penalties that look back on it.
        self._windows: list[tuple[list[int], list[Penalty]]] = []
        steps = 0
        for names in rows[0].kind[1]:
            sizes = [row.steps[steps][0] for row in rows]
            penalties = []
            for name in names:
                numbers = mx.array([[row.steps[steps][2]] for row in rows], mx.float32)
                penalties.append(_PENALTIES[name](numbers))
                steps += 1
            self._windows.append((sizes, penalties))
        self._rows = rows if rows[0].dry else []

    def __call__(self, logits: mx.array, inputs: Sequence[SampleInput]) -> mx.array:
        """Return the logits that tokens are chosen from.

        Args:
            logits: (B, V) float32.
            inputs: of each row; of all or of none the last token is still computing.
        """
        if self._biased is not None:
            biased = mx.take_along_axis(logits, self._biased, axis=-1) + self._bias
            logits = mx.put_along_axis(logits, self._biased, biased, axis=-1)
        for sizes, penalties in self._windows:
            recent = _Recent(inputs, sizes, logits.shape[-1])
            at = recent.tokens
            chosen = given = mx.take_along_axis(logits, at, axis=-1)
            for penalty in penalties:
                chosen = penalty(chosen, recent)
            if recent.any is not None:
                chosen = mx.where(recent.any, chosen, given)
            logits = mx.put_along_axis(logits, at, chosen, axis=-1)
        return self._without_repeats(logits, inputs) if self._rows else logits

    def _without_repeats(self, logits: mx.array, inputs: Sequence[SampleInput]) -> mx.array:
        """Apply DRY."""
        found = [row.dry_terms(each) for row, each in zip(self._rows, inputs, strict=True)]
        if not any(found):
            return logits
        filled = _padded(found, (0, 0.0))
        at = mx.array([[token for token, _ in own] for own in filled], mx.int32)
        terms = mx.array([[term for _, term in own] for own in filled], mx.float32)
        lowered = mx.take_along_axis(logits, at, axis=-1) - terms
        return mx.put_along_axis(logits, at, lowered, axis=-1)


def _padded(rows: list[list[Item]], filler: Item) -> list[list[Item]]:
    """Make rows equally long: the shorter ones repeat their first item, or have the filler."""
    longest = max(map(len, rows))
    return [own + (own[:1] or [filler]) * (longest - len(own)) for own in rows]


class _Recent:
    """The tokens in each row's window.

    Args:
        inputs: of each row.
        sizes: of the rows' windows.
        vocabulary: how many tokens there are.

    Attributes:
        tokens: (B, N); rows with fewer tokens than others repeat one, and those with none have 0.
        any: (B, 1) whether a row has tokens; None: all have.
    """

    def __init__(
        self, inputs: Sequence[SampleInput], sizes: Sequence[int], vocabulary: int
    ) -> None:
        known = [each.known(size) for each, size in zip(inputs, sizes, strict=True)]
        lengths = list(map(len, known))
        longest = max(lengths)
        filled = [tokens + (tokens[-1:] or [0]) * (longest - len(tokens)) for tokens in known]
        self.tokens = mx.array(filled, mx.int32).reshape(len(inputs), longest)
        self._real = None  # (B, N), where rows differ in length
        if min(lengths) < longest:
            self._real = mx.arange(longest) < mx.array(lengths)[:, None]
        self.any: mx.array | None = None
        computing = [each.last for each in inputs if isinstance(each.last, Sample)]
        if computing:
            last = stacked(computing).astype(mx.int32)[:, None]
            if self._real is not None:
                self.tokens = mx.where(self._real, self.tokens, last)
                self._real = mx.concatenate([self._real, mx.ones(last.shape, mx.bool_)], axis=1)
            self.tokens = mx.concatenate([self.tokens, last], axis=1)
        elif longest and not all(lengths):
            self.any = mx.array(lengths)[:, None] > 0
        # Each row's tokens get a separate range; its last number is for padding.
        self._range = vocabulary + 1

    def occurrences(self) -> mx.array:
        """Return for each token how often it occurs in its row's window, (B, N)."""
        first = mx.arange(self.tokens.shape[0], dtype=mx.int64)[:, None] * self._range
        tokens = real = self.tokens + first
        if self._real is not None:
            real = mx.where(self._real, tokens, first + self._range - 1)
        ordered = mx.sort(real.flatten())
        return mx.searchsorted(ordered, tokens, "right") - mx.searchsorted(ordered, tokens)


# Each takes a number for every row, (B, 1), and returns a function of the logits (B, N) of the
# tokens in a window.


def _repetition(factor: mx.array) -> Penalty:
    """Divide positive and multiply negative logits (arXiv 1909.05858)."""
    return lambda logits, _: mx.where(logits < 0, logits * factor, logits / factor)


def _presence(term: mx.array) -> Penalty:
    """Subtract the penalty from whatever occurs."""
    return lambda logits, _: logits - term


def _frequency(term: mx.array) -> Penalty:
    """Subtract the penalty for each occurrence."""
    return lambda logits, recent: logits - term * recent.occurrences()


_PENALTIES = {"repetition": _repetition, "presence": _presence, "frequency": _frequency}


def _bounded(term: float) -> float:
    return min(max(term, -_LARGEST_TERM), _LARGEST_TERM)
