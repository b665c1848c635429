"""The host's own processor of logits, which runs on a thread of the host."""

from __future__ import annotations

import math

import mlx.core as mx

from cowmlx.errors import InvalidArgument
from cowmlx.models.image_tokens import host_ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.call import LogitsFunction, LogitsQuestion
    from cowmlx.generation.sampling.batch import BatchSampler
    from cowmlx.generation.sampling.sampler import SampleInput
    from cowmlx.generation.sampling.samples import Sample


class HostLogits:
    """Asks the host to change the logits of one sample after the other.

    A sample is held here from the moment that its logits are computing. It is asked for when the
    host wants its token, and taken when the host has answered.

    Args:
        function: the host's; None: no sample is held.

    Attributes:
        refused: whether the function has cancelled the generation.
    """

    def __init__(self, function: LogitsFunction | None) -> None:
        self._function = function
        self._held: tuple[SampleInput, mx.array] | None = None
        self._tokens: list[int] = []
        self._question: LogitsQuestion | None = None
        self.refused = False

    @property
    def is_open(self) -> bool:
        """Whether a sample is held."""
        return self._held is not None

    @property
    def is_answered(self) -> bool:
        """Whether the function has returned."""
        return self._question is not None and self._question.answer is not None

    def hold(self, wanted: SampleInput, logits: mx.array, tokens: list[int]) -> SampleInput | None:
        """Hold a sample back; without a function, return it.

        Args:
            wanted: the sample.
            logits: that it is taken from, (1, V).
            tokens: all that come before it.
        """
        if self._function is None:
            return wanted
        self._tokens = host_ids(tokens)
        wanted.history = list(wanted.history)  # the sequence grows before the sample is taken
        self._held, self._question = (wanted, logits), None
        return None

    def close(self) -> None:
        """Forget the sample."""
        self._held = self._question = None

    def ask(self, ask: Callable[[LogitsQuestion], None]) -> None:
        """Ask for the sample that is held, unless it was asked for."""
        if self._question is not None:
            return
        assert self._held is not None and self._function is not None
        _, logits = self._held
        values: Any = memoryview(logits.astype(mx.float32).reshape(-1))  # type: ignore[arg-type]
        self._question = self._function.question(self._tokens, len(values))
        self._question.values[:] = values
        ask(self._question)

    def sample(self, sampler: BatchSampler) -> Sample | None:
        """Start sampling from what the host has answered; None if it cancels.

        Raises:
            InvalidArgument: the host wrote values that are not allowed.
        """
        assert self._held is not None and self._question is not None
        (wanted, logits), question = self._held, self._question
        self.close()
        self.refused = not question.answer
        if self.refused:
            return None
        changed = mx.array(question.values)[None]  # type: ignore[arg-type]
        raw = logits.astype(mx.float32)
        _require_values(raw, changed)
        if wanted.allowed is not None:  # a grammar counts for more
            best = mx.max(mx.where(wanted.allowed, changed, -math.inf))
            changed = raw if best.item() == -math.inf else changed
        (sample,) = sampler.sample([wanted], changed, raw=logits)
        mx.async_eval(sample.rows.arrays)
        return sample


def _require_values(raw: mx.array, changed: mx.array) -> None:
    """Check what the host wrote in the place of the model's logits, both (1, V)."""
    bad = (changed == math.inf) & (raw != math.inf) | mx.isnan(changed) & ~mx.isnan(raw)
    accepted = "a number or -infinity"
    if mx.any(bad).item():
        token: int = mx.argmax(bad).item()  # type: ignore[assignment]
        value = changed[0, token].item()
        raise InvalidArgument(
            f"logits_fn wrote {value:g} for token {token}, must be {accepted}",
            argument="logits_fn",
            value=value,
            accepted=accepted,
        )
    if mx.max(changed).item() == -math.inf:
        raise InvalidArgument(
            "logits_fn forbids all tokens of the vocabulary; one at least must stay",
            argument="logits_fn",
        )
