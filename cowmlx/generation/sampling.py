"""From the logits of one position to a token."""

from __future__ import annotations

import math

import mlx.core as mx

from cowmlx.generation import filters
from cowmlx.generation.penalties import Penalties

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.generation.params import GenerationParams
    from cowmlx.models.model import Model

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_COIN = 0xD1B54A32D192ED03  # tells the coin of a draw from the draw itself
# The inverse of the least temperature that float32 can tell from greedy.
_LARGEST_SCALE = 1e30


def draw_key(seed: int, draw: int) -> mx.array:
    """Return the random key of a seed's n-th draw. mlx's global random state is never used."""
    return mx.random.key(_draw_word(seed, draw))


def draw_coin(seed: int, draw: int) -> float:
    """Return a random number in [0, 1) that belongs to a seed's n-th draw."""
    return (_mixed(_draw_word(seed, draw) ^ _COIN) >> 11) / (1 << 53)


def _draw_word(seed: int, draw: int) -> int:
    """Return 64 random bits. Neighbouring seeds and draws share no run of them."""
    return _mixed(seed + (draw + 1) * _GOLDEN)


def _mixed(word: int) -> int:
    """Mix 64 bits (splitmix64, doi:10.1145/2660193.2660195)."""
    word &= _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


class Sampler:
    """Bias, penalties, mask, filters, temperature, draw: in mlx-lm's order and meaning.

    Bias, penalties and mask are for greedy generations too. Filters work on the probabilities
    at temperature 1, the temperature on what they leave. From the first arithmetic on logits are
    float32, whatever the model's type.

    A token is left in any case: a grammar counts for more than a bias, so where it allows only
    tokens that the bias forbids, the model's own logits decide among those.

    Args:
        params: of the generation.
        model: whose end tokens and line break XTC spares, as mlx-lm's server does.
    """

    def __init__(self, params: GenerationParams, model: Model) -> None:
        self._params = params
        # Whether the token of the highest logit is taken, as it is.
        self.plain = (
            not params.samples
            and params.repetition_penalty == 1
            and not params.presence_penalty
            and not params.frequency_penalty
            and not params.bias
        )
        self._penalties = Penalties(params)
        if params.xtc_probability > 0:
            newline = model.tokenizer.encode_inner("\n", parse_special=False)
            spared = {*model.end_tokens, *newline}
            known = [token for token in sorted(spared) if 0 <= token < model.vocabulary_size]
            self._spared = mx.array(known, mx.int32)

    def __call__(
        self,
        logits: mx.array,
        history: list[int],
        last: mx.array,
        draw: int,
        allowed: mx.array | None = None,
    ) -> mx.array:
        """Choose a token.

        Args:
            logits: (1, V).
            history: the tokens before ``last``.
            last: (1,) the token that gave these logits, perhaps not evaluated yet.
            draw: the number of this draw in its generation; with the seed it alone decides what
                is random.
            allowed: (V,) bool, the tokens that may be chosen; None: all.
        Returns:
            (1,) token ids, lazily.
        """
        params, raw = self._params, logits
        if self._penalties.any:
            logits = self._penalties(logits.astype(mx.float32), history, last)
        if allowed is not None:
            logits = self._mask(logits, raw, allowed)
        if not params.samples:
            return mx.argmax(logits, axis=-1)
        logits = self._filter(logits.astype(mx.float32), draw)
        scale = min(1 / params.temperature, _LARGEST_SCALE)
        if scale > 1:  # so that no logit overflows
            logits = logits - mx.max(logits, axis=-1, keepdims=True)
        return mx.random.categorical(logits * scale, key=draw_key(params.seed, draw))

    def _mask(self, logits: mx.array, raw: mx.array, allowed: mx.array) -> mx.array:
        masked = mx.where(allowed, logits, -math.inf)
        if not self._penalties.forbids:
            return masked
        none_left = mx.max(masked, axis=-1, keepdims=True) == -math.inf
        return mx.where(none_left, mx.where(allowed, raw, -math.inf), masked)

    def _filter(self, logits: mx.array, draw: int) -> mx.array:
        params = self._params
        if params.top_p < 1:
            logits = filters.keep_top_p(logits, params.top_p)
        if params.min_p > 0:
            logits = filters.keep_min_p(logits, params.min_p)
        if params.typical_p < 1:
            logits = filters.keep_typical(logits, params.typical_p)
        if 0 < params.xtc_probability > draw_coin(params.seed, draw):
            logits = filters.exclude_top_choices(logits, params.xtc_threshold, self._spared)
        if params.top_k > 0:
            logits = filters.keep_top_k(logits, params.top_k)
        return logits
