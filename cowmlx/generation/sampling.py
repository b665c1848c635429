"""From the logits of one position to a token."""

from __future__ import annotations

import math

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.generation.params import GenerationParams

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
# The inverse of the least temperature that float32 can tell from greedy.
_LARGEST_SCALE = 1e30


def draw_key(seed: int, draw: int) -> mx.array:
    """Return the random key of a seed's n-th draw.

    Neighbouring seeds and draws are mixed (splitmix64), so that no two
    generations share a run of keys. mlx's global random state is never used.
    """
    word = (seed + (draw + 1) * _GOLDEN) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return mx.random.key(word ^ (word >> 31))


class Sampler:
    """Penalties, filters, temperature, draw: in mlx-lm's order and meaning.

    The repetition penalty works on the logits; top-p, min-p and top-k on the
    probabilities at temperature 1; the temperature on what they leave.
    """

    def __init__(self, params: GenerationParams) -> None:
        self._params = params
        self._draws = 0

    def __call__(self, logits: mx.array, history: list[int], last: mx.array) -> mx.array:
        """Choose a token.

        Args:
            logits: (1, V).
            history: the tokens before ``last``.
            last: (1,) the token that gave these logits, perhaps not evaluated yet.
        Returns:
            (1,) token ids, lazily.
        """
        params = self._params
        if params.repetition_penalty != 1:
            logits = self._penalize(logits, history, last)
        if params.temperature == 0:
            return mx.argmax(logits, axis=-1)
        logits = logits.astype(mx.float32)
        if params.top_p < 1 or params.min_p > 0:
            logits = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        if params.top_p < 1:
            logits = keep_top_p(logits, params.top_p)
        if params.min_p > 0:
            logits = keep_min_p(logits, params.min_p)
        if 0 < params.top_k < logits.shape[-1]:
            logits = keep_top_k(logits, params.top_k)
        key = draw_key(params.seed, self._draws)
        self._draws += 1
        scale = min(1 / params.temperature, _LARGEST_SCALE)
        if scale > 1:  # so that no logit overflows
            logits = logits - mx.max(logits, axis=-1, keepdims=True)
        return mx.random.categorical(logits * scale, key=key)

    def _penalize(self, logits: mx.array, history: list[int], last: mx.array) -> mx.array:
        """Divide positive and multiply negative logits of recent tokens (arXiv 1909.05858)."""
        penalty = self._params.repetition_penalty
        before = min(self._params.repetition_window - 1, len(history))
        recent = last.astype(mx.int32)
        if before:
            recent = mx.concatenate([mx.array(history[-before:], mx.int32), recent])
        chosen = mx.take_along_axis(logits, recent[None], axis=-1)
        chosen = mx.where(chosen < 0, chosen * penalty, chosen / penalty)
        return mx.put_along_axis(logits, recent[None], chosen, axis=-1)


def keep_top_p(logprobs: mx.array, top_p: float) -> mx.array:
    """Drop the tokens outside the smallest set whose mass reaches ``top_p`` (arXiv 1904.09751)."""
    ordered = mx.sort(logprobs, axis=-1)
    probabilities = mx.exp(ordered)
    above = mx.cumsum(probabilities, axis=-1, reverse=True, inclusive=False)
    total = above[..., :1] + probabilities[..., :1]
    dropped = (above >= top_p * total).sum(axis=-1, keepdims=True)
    threshold = mx.take_along_axis(ordered, dropped, axis=-1)
    return mx.where(logprobs < threshold, -math.inf, logprobs)


def keep_min_p(logprobs: mx.array, min_p: float) -> mx.array:
    """Drop tokens less probable than ``min_p`` times the best one (arXiv 2407.01082)."""
    threshold = mx.max(logprobs, axis=-1, keepdims=True) + math.log(min_p)
    return mx.where(logprobs < threshold, -math.inf, logprobs)


def keep_top_k(logits: mx.array, top_k: int) -> mx.array:
    """Drop all but the ``top_k`` most probable tokens."""
    rest = mx.argpartition(-logits, kth=top_k - 1, axis=-1)[..., top_k:]
    return mx.put_along_axis(logits, rest, mx.array(-math.inf, logits.dtype), axis=-1)
