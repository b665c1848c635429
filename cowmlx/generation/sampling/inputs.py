"""What a generation samples its tokens from, one after another."""

from __future__ import annotations

import math

import mlx.core as mx

from cowmlx.generation.sampling.sampler import Sampler
from cowmlx.generation.sampling.samples import Sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.generation.grammar import Constraint
    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.thinking import ThinkingFirst
    from cowmlx.models.model import Model

    Constrains = Constraint | ThinkingFirst


class SampleInput:
    """The input of a row's sample, besides its logits.

    Args:
        sampler: of its generation.
        history: the tokens before ``last``.
        last: the token that gave the logits, perhaps still computing.
        number: of the sample in its generation; with the seed it alone decides what is random.
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
    def known_last(self) -> int:
        """The last token, where it is known."""
        assert not isinstance(self.last, Sample)
        return self.last

    def known(self, window: int) -> list[int]:
        """Return the last ``window`` tokens, but for one that is still computing."""
        before = min(window - 1, len(self.history))
        tokens = self.history[-before:] if before else []
        return tokens if isinstance(self.last, Sample) else [*tokens, self.last]


class SampleInputs:
    """Numbers the samples, and keeps what changes from one to the next.

    Args:
        params: of the generation.
        model: whose tokens these are.
        constraint: what the output must match.

    Attributes:
        count: samples so far.
        waits: whether a token has to be known before its successor is sampled: the mask, DRY and
            mirostat need it.
    """

    def __init__(
        self, params: GenerationParams, model: Model, constraint: Constrains | None
    ) -> None:
        self.count = 0
        self._params = params
        self._sampler = Sampler(params, model)
        self._constraint = constraint
        self._surprise = 2 * params.mirostat_tau  # mirostat's bound
        self.waits = constraint is not None or self._sampler.waits

    def behind(self, history: list[int], last: Sample | int, *, ahead: int = 0) -> SampleInput:
        """Return the input of the sample behind ``history`` and its ``last`` token.

        ``ahead`` samples come before it.
        """
        number, logprobs = self.count + ahead, self._params.logprobs
        return SampleInput(self._sampler, history, last, number, None, logprobs, self._surprise)

    def allowed_behind(self, history: list[int], last: int, logits: mx.array) -> SampleInput:
        """Return the same with the tokens that the grammar allows, while logits compute."""
        allowed = None
        if self._constraint is not None:
            mx.async_eval(logits)
            allowed = self._constraint.allowed()
        number, logprobs = self.count, self._params.logprobs
        return SampleInput(self._sampler, history, last, number, allowed, logprobs, self._surprise)

    def note(self, token: int, sample: Sample) -> bool:
        """Take note of a token; true if the text that the grammar describes ends with it."""
        if self._params.mirostat:  # its bound moves (arXiv 2007.14966, algorithm 2)
            off = sample.surprise() - self._params.mirostat_tau
            if math.isfinite(off):  # logits may be no numbers
                self._surprise -= self._params.mirostat_eta * off
        return self._constraint is not None and self._constraint.accept(token)
