"""Bias and penalties: what is done to logits before anything is chosen from them."""

from __future__ import annotations

import math
from itertools import groupby

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cowmlx.generation.params import GenerationParams

    Penalty = Callable[[mx.array, mx.array], mx.array]

# Nothing that is added or multiplied goes beyond these: it has the last word long before, and
# together they cannot make a logit overflow.
_LARGEST_TERM = 1e24
_LARGEST_FACTOR = 1e12


class Penalties:
    """A bias, then the repetition, presence and frequency penalties.

    Each penalty looks back on a window of its own, the last tokens of the whole sequence.

    Attributes:
        any: whether there are any at all.
        forbids: whether the bias forbids tokens.
    """

    def __init__(self, params: GenerationParams) -> None:
        self.forbids = -math.inf in params.bias.values()
        self._biased = mx.array(list(params.bias), mx.int32)
        self._bias = mx.array(
            [_bounded(value) if value > -math.inf else value for value in params.bias.values()]
        )
        steps = (
            (params.repetition_window, _repetition(params.repetition_penalty)),
            (params.presence_window, _presence(params.presence_penalty)),
            (params.frequency_window, _frequency(params.frequency_penalty)),
        )
        self._steps = [(window, penalty) for window, penalty in steps if penalty is not None]
        self.any = bool(params.bias or self._steps)

    def __call__(self, logits: mx.array, history: list[int], last: mx.array) -> mx.array:
        """Return the logits that tokens are chosen from.

        Args:
            logits: (1, V) float32.
            history: the tokens before ``last``.
            last: (1,) the last token, perhaps not evaluated yet.
        """
        if self._bias.size:
            at = self._biased[None]
            biased = mx.take_along_axis(logits, at, axis=-1) + self._bias
            logits = mx.put_along_axis(logits, at, biased, axis=-1)
        for window, steps in groupby(self._steps, key=lambda step: step[0]):
            at = _recent(history, last, window)[None]
            chosen = mx.take_along_axis(logits, at, axis=-1)
            for _, penalty in steps:
                chosen = penalty(chosen, at)
            # A token that occurs twice is written twice, with the same value.
            logits = mx.put_along_axis(logits, at, chosen, axis=-1)
        return logits


def _recent(history: list[int], last: mx.array, window: int) -> mx.array:
    """Return the last ``window`` tokens, fewer if there are no more."""
    recent = last.astype(mx.int32)
    before = min(window - 1, len(history))
    if before:
        recent = mx.concatenate([mx.array(history[-before:], mx.int32), recent])
    return recent


# A penalty takes the logits of the tokens in its window and the tokens, both (1, N), and returns
# their new logits. None stands for one that is off.


def _repetition(penalty: float) -> Penalty | None:
    """Divide positive and multiply negative logits (arXiv 1909.05858)."""
    factor = min(max(penalty, 1 / _LARGEST_FACTOR), _LARGEST_FACTOR)
    if factor == 1:
        return None
    return lambda logits, _: mx.where(logits < 0, logits * factor, logits / factor)


def _presence(penalty: float) -> Penalty | None:
    """Subtract the penalty from whatever occurs."""
    term = _bounded(penalty)
    return (lambda logits, _: logits - term) if term else None


def _frequency(penalty: float) -> Penalty | None:
    """Subtract the penalty for each occurrence."""
    term = _bounded(penalty)
    return (lambda logits, tokens: logits - term * _occurrences(tokens)) if term else None


def _occurrences(tokens: mx.array) -> mx.array:
    """Return for each token how often it occurs among all, (1, N)."""
    ordered = mx.sort(tokens[0])
    return mx.searchsorted(ordered, tokens, "right") - mx.searchsorted(ordered, tokens)


def _bounded(term: float) -> float:
    return min(max(term, -_LARGEST_TERM), _LARGEST_TERM)
