"""What a generation draws its tokens from, one after another."""

from __future__ import annotations

import math

import mlx.core as mx

from cowmlx.generation.sampling.sampler import Sampler
from cowmlx.generation.sampling.samples import DrawInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.generation.grammar import Constraint
    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.sampling.samples import Draw
    from cowmlx.generation.thinking import ThinkingFirst
    from cowmlx.models.model import Model

    Constrains = Constraint | ThinkingFirst


class DrawInputs:
    """Numbers the draws, and keeps what changes from one to the next.

    Args:
        params: of the generation.
        model: whose tokens these are.
        constraint: what the output must match.

    Attributes:
        drawn: tokens so far.
        waits: whether a token has to be known before its successor is drawn: the mask, DRY and
            mirostat need it.
    """

    def __init__(
        self, params: GenerationParams, model: Model, constraint: Constrains | None
    ) -> None:
        self.drawn = 0
        self._params = params
        self._sampler = Sampler(params, model)
        self._constraint = constraint
        self._surprise = 2 * params.mirostat_tau  # mirostat's bound
        self.waits = constraint is not None or self._sampler.waits

    def behind(self, history: list[int], last: Draw | int, *, ahead: int = 0) -> DrawInput:
        """Return what the token after ``last``, which is behind ``history``, is drawn from.

        It is drawn ``ahead`` draws from now.
        """
        number, logprobs = self.drawn + ahead, self._params.logprobs
        return DrawInput(self._sampler, history, last, number, None, logprobs, self._surprise)

    def allowed_behind(self, history: list[int], last: int, logits: mx.array) -> DrawInput:
        """Return the same with what the grammar allows, found out while logits compute."""
        allowed = None
        if self._constraint is not None:
            mx.async_eval(logits)
            allowed = self._constraint.allowed()
        drawn, logprobs = self.drawn, self._params.logprobs
        return DrawInput(self._sampler, history, last, drawn, allowed, logprobs, self._surprise)

    def note(self, token: int, draw: Draw) -> bool:
        """Take note of a token; true if the text that the grammar describes ends with it."""
        if self._params.mirostat:  # its bound moves (arXiv 2007.14966, algorithm 2)
            off = draw.surprise() - self._params.mirostat_tau
            if math.isfinite(off):  # logits may be no numbers
                self._surprise -= self._params.mirostat_eta * off
        return self._constraint is not None and self._constraint.accept(token)
