"""Guessing tokens ahead, for the model to check several in one step."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.generation.sampling.batch import BatchSampler
from cowmlx.generation.sampling.inputs import SampleInput
from cowmlx.generation.sampling.sampler import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from cowmlx.cache.sequence import Sequence
    from cowmlx.generation.params import GenerationParams
    from cowmlx.models.model import Model

    class Drafter(Protocol):
        """Guesses what follows a sequence."""

        def prefill(self, prompt: list[int], chunk: int) -> bool:
            """Process one chunk of a prompt, before its model does; false if none is left."""

        def guess(self, tokens: list[int], count: int, number: int) -> list[int]:
            """Return at most ``count`` tokens that may follow; ``number`` is the first one's."""


LONGEST, SHORTEST = 4, 2  # tokens that have to be alike for the next to be guessed from them


class PromptLookup:
    """Guesses that what followed the last few tokens before follows them again.

    (Prompt lookup decoding, A. Saxena 2023.)
    """

    def __init__(self) -> None:
        self._seen: list[int] = []
        # The index behind the last occurrence of each run of tokens.
        self._after: dict[tuple[int, ...], int] = {}

    def prefill(self, prompt: list[int], chunk: int) -> bool:
        """Do nothing: looking up needs no network."""
        return False

    def guess(self, tokens: list[int], count: int, number: int) -> list[int]:
        """Return what followed the longest run of tokens that has occurred before."""
        found = None
        self._learn(tokens[:-1])
        for length in range(min(LONGEST, len(tokens)), SHORTEST - 1, -1):
            found = self._after.get(tuple(tokens[-length:]))
            if found is not None:
                break
        return tokens[found : found + count] if found is not None else []

    def _learn(self, tokens: list[int]) -> None:
        """Note every run but those that end the sequence."""
        known = len(self._seen)
        if tokens[:known] != self._seen:
            known = 0
            self._after.clear()
        for end in range(max(known, 1), len(tokens) + 1):
            for length in range(SHORTEST, LONGEST + 1):
                if length <= end:
                    self._after[tuple(tokens[end - length : end])] = end
        self._seen = tokens


class DraftModel:
    """A smaller model that generates with the same keys, so that its samples tend to be the same.

    Args:
        model: the draft model.
        sequence: what it has processed so far, of whatever prompt.
        params: of the generation.
    """

    def __init__(self, model: Model, sequence: Sequence, params: GenerationParams) -> None:
        self._sequence = sequence
        self._sampler = Sampler(params, model)
        self._batch_sampler = BatchSampler()

    def prefill(self, prompt: list[int], chunk: int) -> bool:
        """Process one chunk of a prompt, all but its last token; false if none is left."""
        sequence = self._sequence
        sequence.keep_prefix(prompt)
        rest = prompt[len(sequence.tokens) : -1][:chunk]
        if not rest:
            return False
        sequence.forward(mx.array(rest, mx.int32))
        mx.eval(sequence.state)
        sequence.append(rest)
        return True

    def guess(self, tokens: list[int], count: int, number: int) -> list[int]:
        """Return the tokens that this model would generate."""
        sequence = self._sequence
        sequence.keep_prefix(tokens)
        guesses: list[int] = []
        rest = tokens[len(sequence.tokens) :]
        if not sequence.can_take_back(len(rest) + count):
            return guesses
        for i in range(count):
            ids = mx.array(rest, mx.int32)
            logits = sequence.forward(ids)[:, -1, :]
            history = [*tokens, *guesses][:-1]
            wanted = SampleInput(self._sampler, history, rest[-1], number + i)
            (chosen,) = self._batch_sampler.sample([wanted], logits)
            sequence.append(rest)
            rest = [chosen.value()]
            guesses += rest
        return guesses
