"""From the logits of positions to a token each."""

from __future__ import annotations

import math

import mlx.core as mx

from cowmlx.generation.sampling import filters
from cowmlx.generation.sampling.penalties import Penalties, RowPenalties
from cowmlx.generation.sampling.randomness import draw_coin, draw_keys, gumbel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.sampling.inputs import DrawInput
    from cowmlx.models.model import Model

# The inverse of the least temperature that float32 can tell from greedy.
_LARGEST_SCALE = 1e30


class Sampler:
    """Bias, penalties, mask, filters, temperature, draw: in mlx-lm's order and meaning.

    Bias, penalties and mask are for greedy generations too. Filters work on the probabilities
    at temperature 1, the temperature on what they leave, mirostat on what the temperature makes
    of all. From the first arithmetic on logits are
    float32, whatever the model's type.

    A token is left in any case: a grammar counts for more than a bias, so where it allows only
    tokens that the bias forbids, the model's own logits decide among those.

    Args:
        params: of the generation.
        model: whose end tokens and line break XTC spares, as mlx-lm's server does.

    Attributes:
        params: of the generation.
        penalties: of it.
        spared: (N,) tokens that XTC spares.
        scale: the inverse of the temperature.
        dynamic: the least and the most temperature, and the exponent between them, or None.
        waits: whether a draw needs to know the token before.
        kind: what samplers have in common that do the same things to logits, if with other
            numbers: these sample the rows of a batch in the same operations.
    """

    def __init__(self, params: GenerationParams, model: Model) -> None:
        self.params = params
        self.penalties = Penalties(params, model)
        self.dynamic: tuple[float, float, float] | None = None
        if params.dynatemp_range > 0:
            least = max(params.temperature - params.dynatemp_range, 0)
            most = params.temperature + params.dynatemp_range
            self.dynamic = least, most, params.dynatemp_exponent
        self.waits = self.penalties.dry or params.mirostat > 0
        self.spared = mx.array([], mx.int32)
        if params.xtc_probability > 0:
            newline = model.tokenizer.encode_inner("\n", parse_special=False)
            spared = {*model.end_tokens, *newline}
            known = [token for token in sorted(spared) if 0 <= token < model.vocabulary_size]
            self.spared = mx.array(known, mx.int32)
        self.scale = min(1 / params.temperature, _LARGEST_SCALE) if params.samples else 1.0
        self._kernel_options: Any = None
        self.kind = params.samples, self.penalties.kind, self.penalties.forbids, self._filters

    def kernel_options(self, make: Callable[[Sampler], Any]) -> Any:
        """Return what ``make`` has made of this sampler, once."""
        if self._kernel_options is None:
            self._kernel_options = make(self)
        return self._kernel_options

    @property
    def _filters(self) -> tuple[bool, ...]:
        """Which filters there are."""
        params = self.params
        if not params.samples:
            return ()
        return (
            params.top_n_sigma > 0,
            params.top_p < 1,
            params.min_p > 0,
            params.typical_p < 1,
            params.xtc_probability > 0,
            params.top_k > 0,
            params.dynatemp_range > 0,
            params.mirostat > 0,
        )


class RowSampler:
    """Samplers of one kind, for the rows of a batch: each row gets the token that it gets alone.

    Args:
        samplers: of every row, of one kind and one model.
    """

    def __init__(self, samplers: Sequence[Sampler]) -> None:
        first = samplers[0]
        self._params = [sampler.params for sampler in samplers]
        self._samples = first.params.samples
        self._forbids = first.penalties.forbids
        self._spared = first.spared
        self._penalties: RowPenalties | None = None
        if first.penalties.any:
            self._penalties = RowPenalties([sampler.penalties for sampler in samplers])
        if self._samples:
            least = filters.LEAST_MASS
            self._top_p = _column(max(own.top_p, least) for own in self._params)
            self._typical_p = _column(max(own.typical_p, least) for own in self._params)
            if first.params.min_p > 0:
                self._log_min_p = _column(math.log(own.min_p) for own in self._params)
            self._scale = _column(sampler.scale for sampler in samplers)
            self._top_n_sigma = _column(own.top_n_sigma for own in self._params)
            if first.dynamic is not None:
                numbers = [sampler.dynamic or (0.0, 0.0, 1.0) for sampler in samplers]
                self._dynamic = [_column(column) for column in zip(*numbers, strict=True)]

    def __call__(self, logits: mx.array, inputs: Sequence[DrawInput]) -> tuple[mx.array, mx.array]:
        """Choose a token for every row.

        Args:
            logits: (B, V).
            inputs: of the rows; either all have tokens that are not allowed, or none.
        Returns:
            (B,) token ids, lazily, and (B,) their surprise in bits, among the tokens that
            mirostat left; 0 without.
        """
        raw = logits
        if self._penalties is not None:
            logits = self._penalties(logits.astype(mx.float32), inputs)
        masks = [each.allowed for each in inputs if each.allowed is not None]
        if masks:
            logits = self._mask(logits, raw, mx.stack(masks))
        if not self._samples:
            return mx.argmax(logits, axis=-1), mx.zeros((len(inputs),))
        logits = self._filter(logits.astype(mx.float32), inputs)
        # The best one is 0, so that no logit overflows.
        logits = (logits - mx.max(logits, axis=-1, keepdims=True)) * self._scales(logits)
        if self._params[0].mirostat:
            bounds = _column(each.surprise for each in inputs)
            logits, log_left = filters.keep_unsurprising(logits, bounds)
        draws = zip(self._params, inputs, strict=True)
        keys = draw_keys((params.seed, each.number) for params, each in draws)
        tokens = mx.argmax(logits + gumbel(keys, logits.shape[-1]), axis=-1)
        if not self._params[0].mirostat:
            return tokens, mx.zeros((len(inputs),))
        chosen = mx.take_along_axis(logits, tokens[:, None], axis=-1)
        return tokens, mx.maximum((log_left - chosen) / math.log(2), 0)[:, 0]

    def _scales(self, logits: mx.array) -> mx.array:
        """Return (B, 1) the inverses of the temperatures."""
        if self._params[0].dynatemp_range == 0:
            return self._scale
        least, most, exponent = self._dynamic
        temperature = least + (most - least) * mx.power(filters.entropy_parts(logits), exponent)
        return mx.minimum(1 / temperature, _LARGEST_SCALE)

    def _mask(self, logits: mx.array, raw: mx.array, allowed: mx.array) -> mx.array:
        masked = mx.where(allowed, logits, -math.inf)
        if not self._forbids:
            return masked
        none_left = mx.max(masked, axis=-1, keepdims=True) == -math.inf
        return mx.where(none_left, mx.where(allowed, raw, -math.inf), masked)

    def _filter(self, logits: mx.array, inputs: Sequence[DrawInput]) -> mx.array:
        params = self._params
        if params[0].top_n_sigma > 0:
            logits = filters.keep_top_n_sigma(logits, self._top_n_sigma)
        if params[0].top_p < 1:
            logits = filters.keep_top_p(logits, self._top_p)
        if params[0].min_p > 0:
            logits = filters.keep_min_p(logits, self._log_min_p)
        if params[0].typical_p < 1:
            logits = filters.keep_typical(logits, self._typical_p)
        if params[0].xtc_probability > 0:
            thresholds = [
                own.xtc_threshold
                if own.xtc_probability > draw_coin(own.seed, each.number)
                else math.inf
                for own, each in zip(params, inputs, strict=True)
            ]
            if min(thresholds) < math.inf:
                logits = filters.exclude_top_choices(logits, _column(thresholds), self._spared)
        if params[0].top_k > 0:
            logits = filters.keep_top_k(logits, [own.top_k for own in params])
        return logits


def _column(numbers: Iterable[float]) -> mx.array:
    """Return (B, 1) a number for each row."""
    return mx.array([[number] for number in numbers], mx.float32)
