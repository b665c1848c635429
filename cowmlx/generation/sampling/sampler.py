"""From the logits of positions to a token each."""

from __future__ import annotations

import math

import mlx.core as mx

from cowmlx.generation.sampling.filters import SAMPLERS, Candidates
from cowmlx.generation.sampling.penalties import Penalties, RowPenalties
from cowmlx.generation.sampling.randomness import gumbel, sample_keys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.sampling.inputs import SampleInput
    from cowmlx.models.model import Model


class Sampler:
    """Bias, penalties, mask, samplers, random choice: in mlx-lm's order and meaning.

    Bias, penalties and mask are for greedy generations too. Filters work on the probabilities
    at temperature 1, the temperature on the tokens that they leave, mirostat on the probabilities
    at that temperature. From the first arithmetic on logits are float32, whatever the model's type.

    At least one token is left: a grammar counts for more than a bias, so where it allows only
    tokens that the bias forbids, the model's own logits decide among those.

    Args:
        params: of the generation.
        model: whose tokens sequence breakers and XTC look at.

    Attributes:
        params: of the generation.
        penalties: of it.
        steps: rows of :data:`SAMPLERS` that are active, with their numbers; none: greedy.
        waits: whether the token before must be known: DRY and mirostat need it.
        kind: equal for samplers that do the same things to logits, if with other numbers: these
            sample the rows of a batch in the same operations.
    """

    def __init__(self, params: GenerationParams, model: Model) -> None:
        self.params = params
        self.penalties = Penalties(params, model)
        self.steps = [
            (row, row.numbers_of(params, model)) for row in SAMPLERS if row.active(params)
        ]
        self.waits = self.penalties.dry or params.mirostat > 0
        self._kernel_options: Any = None
        names = tuple(row.name for row, _ in self.steps)
        self.kind = self.penalties.kind, self.penalties.forbids, names

    def kernel_options(self, make: Callable[[Sampler], Any]) -> Any:
        """Return what ``make`` has made of this sampler, once."""
        if self._kernel_options is None:
            self._kernel_options = make(self)
        return self._kernel_options


class RowSampler:
    """Samplers of one kind, for the rows of a batch: each row gets the token that it gets alone.

    Args:
        samplers: of every row, of one kind and one model.
    """

    def __init__(self, samplers: Sequence[Sampler]) -> None:
        first = samplers[0]
        self._seeds = [sampler.params.seed for sampler in samplers]
        self._forbids = first.penalties.forbids
        self._penalties: RowPenalties | None = None
        if first.penalties.any:
            self._penalties = RowPenalties([sampler.penalties for sampler in samplers])
        self._steps = [
            row.make([sampler.steps[place][1] for sampler in samplers])
            for place, (row, _) in enumerate(first.steps)
        ]

    def __call__(
        self, logits: mx.array, inputs: Sequence[SampleInput]
    ) -> tuple[mx.array, mx.array]:
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
        if not self._steps:
            return mx.argmax(logits, axis=-1), mx.zeros((len(inputs),))
        left = Candidates(logits.astype(mx.float32), inputs)
        for apply in self._steps:
            apply(left)
        keys = sample_keys(
            (seed, each.number) for seed, each in zip(self._seeds, inputs, strict=True)
        )
        tokens = mx.argmax(left.logits + gumbel(keys, left.logits.shape[-1]), axis=-1)
        if left.log_left is None:
            return tokens, mx.zeros((len(inputs),))
        chosen = mx.take_along_axis(left.logits, tokens[:, None], axis=-1)
        return tokens, mx.maximum((left.log_left - chosen) / math.log(2), 0)[:, 0]

    def _mask(self, logits: mx.array, raw: mx.array, allowed: mx.array) -> mx.array:
        masked = mx.where(allowed, logits, -math.inf)
        if not self._forbids:
            return masked
        none_left = mx.max(masked, axis=-1, keepdims=True) == -math.inf
        return mx.where(none_left, mx.where(allowed, raw, -math.inf), masked)
