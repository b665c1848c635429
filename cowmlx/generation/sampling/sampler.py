"""From the logits of positions to a token each."""

from __future__ import annotations

import math

import mlx.core as mx

from cowmlx.generation.sampling.filters import SAMPLERS, Candidates
from cowmlx.generation.sampling.penalties import Penalties, RowPenalties
from cowmlx.generation.sampling.randomness import gumbel, sample_keys
from cowmlx.generation.sampling.samples import Sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cowmlx.generation.constrains import Constrains
    from cowmlx.generation.params import GenerationParams
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
        self.kernel_options: Any = None  # its options in the kernel's form, made when used
        names = tuple(row.name for row, _ in self.steps)
        self.kind = self.penalties.kind, self.penalties.forbids, names


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


class SampleInput:
    """The input of a row's sample, besides its logits.

    Args:
        sampler: of its generation.
        history: the tokens before ``last``.
        last: the token that gave the logits, perhaps still computing.
        number: of the sample in its generation; with the seed it alone decides random numbers.
        allowed: (V,) bool, the tokens that may be chosen; None: all.
        logprobs: how many of the most probable tokens are reported with the chosen one's
            log probability; 0: none, and not that one's either.
        surprise: mirostat's bound, in bits.
    """

    __slots__ = ("allowed", "history", "last", "logprobs", "number", "sampler", "surprise")

    def __init__(
        self,
        sampler: Sampler,
        history: list[int],
        last: Sample | int,
        number: int,
        allowed: mx.array | None = None,
        logprobs: int = 0,
        surprise: float = 0.0,
    ) -> None:
        self.sampler = sampler
        self.history = history
        self.last = last
        self.number = number
        self.allowed = allowed
        self.logprobs = logprobs
        self.surprise = surprise

    @property
    def whole(self) -> list[int]:
        """All tokens, where the last one is known; it is negative if there is none."""
        assert not isinstance(self.last, Sample)
        return self.history if self.last < 0 else [*self.history, self.last]

    def known(self, window: int) -> list[int]:
        """Return the last ``window`` tokens, but for one that is still computing."""
        before = min(window - 1, len(self.history))
        tokens = self.history[-before:] if before else []
        if isinstance(self.last, Sample) or self.last < 0:
            return tokens
        return [*tokens, self.last]


class SampleInputs:
    """Numbers the samples, and keeps the state between them.

    Args:
        params: of the generation.
        model: whose tokens these are.
        constraint: on the output.
        asks: whether the host is asked for each sample, so that the token before must be known.

    Attributes:
        count: samples so far.
        notes: whether :meth:`note` has to know every token.
        constraint: on the output, or None.
    """

    def __init__(
        self,
        params: GenerationParams,
        model: Model,
        constraint: Constrains | None,
        *,
        asks: bool = False,
    ) -> None:
        self.count = 0
        self._params = params
        self._sampler = Sampler(params, model)
        self.constraint = constraint
        self._surprise = 2 * params.mirostat_tau  # mirostat's bound
        self._asks = asks
        self.notes = constraint is not None or self._sampler.waits or asks

    @property
    def waits(self) -> bool:
        """Whether a token has to be known before its successor is sampled.

        DRY and mirostat need it, a host that is asked, and the mask, if there is one.
        """
        waits = self._sampler.waits or self._asks
        return waits or (self.constraint is not None and self.constraint.waits)

    def behind(
        self,
        history: list[int],
        last: Sample | int,
        *,
        ahead: int = 0,
        allowed: mx.array | None = None,
    ) -> SampleInput:
        """Return the input of the sample behind ``history`` and its ``last`` token.

        ``ahead`` samples come before it.
        """
        number, logprobs = self.count + ahead, self._params.logprobs
        return SampleInput(self._sampler, history, last, number, allowed, logprobs, self._surprise)

    def allowed_behind(self, history: list[int], last: int, logits: mx.array) -> SampleInput:
        """Return the same with the tokens that the grammar allows, while logits compute."""
        allowed = None
        if self.constraint is not None:
            mx.async_eval(logits)
            allowed = self.constraint.allowed()
        return self.behind(history, last, allowed=allowed)

    def note(self, token: int, sample: Sample) -> bool:
        """Take note of a token; true if the text that the grammar describes ends with it."""
        if self._params.mirostat:  # its bound moves (arXiv 2007.14966, algorithm 2)
            off = sample.surprise() - self._params.mirostat_tau
            if math.isfinite(off):  # logits may be no numbers
                self._surprise -= self._params.mirostat_eta * off
        return self.constraint is not None and self.constraint.accept(token)
