"""Guesses of tokens, checked by the model in one step."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.generation.sampling.batch import BatchSampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from cowmlx.cache.sequence import Sequence
    from cowmlx.generation.drafting import Drafter
    from cowmlx.generation.sampling.inputs import SampleInputs
    from cowmlx.generation.sampling.samples import Sample


class Guesses:
    """Guesses what follows a generation's tokens, and finds out how much of that is right.

    A guess is right if the sampler samples the same token there, so a draft never changes
    what is generated (arXiv 2211.17192 without its correction: the samples are coupled by
    their keys instead).

    Args:
        drafter: what guesses.
        sequence: the context's.
        inputs: of the generation's samples.
        ends: the model's tokens that end a generation.
    """

    def __init__(
        self, drafter: Drafter, sequence: Sequence, inputs: SampleInputs, ends: Container[int]
    ) -> None:
        self._drafter = drafter
        self._sequence = sequence
        self._inputs = inputs
        self._ends = ends
        self._batch_sampler = BatchSampler()

    def behind(self, pending: Sample, room: int) -> list[int]:
        """Return a token with at most ``room`` guesses of what follows; none if there are none."""
        tokens = self._sequence.tokens
        if room < 1 or not self._sequence.can_take_back(room + 1):
            return []
        token = pending.value()
        if token in self._ends:
            return []
        guesses = self._drafter.guess([*tokens, token], room, self._inputs.count)
        return [token, *guesses] if guesses else []

    def check(self, ids: list[int], base: int, logits: mx.array) -> list[Sample]:
        """Sample behind each of the tokens, up to the first wrong guess; the others are dropped.

        Args:
            ids: a token and guesses, which the sequence holds.
            base: tokens held before them.
            logits: (S, V) behind each of them.
        Returns:
            the samples: all but the last are guesses that were right.
        """
        history, guesses = self._sequence.tokens, ids[1:]
        inputs = [
            self._inputs.behind(history[: base + i], ids[i], ahead=i) for i in range(len(ids))
        ]
        samples = self._batch_sampler.sample(inputs, logits)
        mx.eval(samples[0].rows.arrays)
        right = 0
        while right < len(guesses) and samples[right].value() == guesses[right]:
            right += 1
        self._sequence.trim_to(base + 1 + right)
        self._inputs.count += right + 1
        return samples[: right + 1]
