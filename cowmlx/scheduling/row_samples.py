"""Samples the next tokens of a batch's contexts, all rows at once."""

from __future__ import annotations

import mlx.core as mx

from cowmlx import failures
from cowmlx.generation.sampling.batch import BatchSampler
from cowmlx.generation.sampling.samples import RowLogits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cowmlx.generation.context import Context
    from cowmlx.generation.sampling.sampler import SampleInput
    from cowmlx.generation.sampling.samples import Step

    # A context, the input of its sample, and the row of its logits.
    Wanted = tuple[Context, SampleInput, int]


class RowSamples:
    """Samples for the contexts of a lane. A failure of one ends its generation alone."""

    def __init__(self) -> None:
        self._before = BatchSampler()  # steps read their tokens
        self._after = BatchSampler()

    def follow(
        self, fed: Sequence[tuple[Context, Step | None]], rows: list[int], logits: mx.array
    ) -> None:
        """Start sampling the next tokens, unless they depend on the token before.

        Args:
            fed: contexts, and the steps that were fed; None for one whose prompt was.
            rows: of their logits.
            logits: (B, V).
        """
        wanted: list[Wanted] = []
        later: list[Context] = []
        for (context, step), row in zip(fed, rows, strict=True):
            assert context.generation is not None
            each: SampleInput | None
            try:
                own = RowLogits(logits, row)
                if step is None:
                    each = context.generation.follow_prompt(own)
                else:
                    each = context.generation.follow(step, own)
            except BaseException as error:
                context.fail(error)
                continue
            if each is None:
                later.append(context)
            else:
                wanted.append((context, each, row))
        _sample(self._before, wanted, [logits])
        if later:
            try:
                mx.async_eval(logits)
            except BaseException as error:
                for context in later:
                    context.fail(error)

    def match(self, taken: list[tuple[Context, Step]]) -> None:
        """Start sampling the tokens that depend on the steps' tokens."""
        wanted: list[Wanted] = []
        logits: list[mx.array] = []
        for context, step in taken:
            generation = context.generation
            if generation is None or generation.ended:
                continue
            try:
                each = generation.match(step)
            except BaseException as error:
                context.fail(error)
                if failures.spoils(error):  # the tokens of the rest were never computed
                    return
                continue
            if each is not None:
                wanted.append((context, each, len(logits)))
                logits.append(step.following.array())
        _sample(self._after, wanted, logits)


def _sample(batch_sampler: BatchSampler, wanted: list[Wanted], parts: list[mx.array]) -> None:
    """Sample for contexts, together unless that fails, from parts of logits (B, V)."""
    if not wanted:
        return
    try:
        logits = parts[0] if len(parts) == 1 else mx.concatenate(parts)
        samples = batch_sampler.sample(
            [input_ for _, input_, _ in wanted], logits, [row for _, _, row in wanted]
        )
        mx.async_eval(samples[0].rows.arrays)
    except BaseException as error:
        if len(wanted) == 1 or failures.spoils(error):
            for context, _, _ in wanted:
                context.fail(error)
            return
        for context, input_, row in wanted:  # so that only those that cause it fail
            own, at = (parts, row) if len(parts) == 1 else ([parts[row]], 0)
            _sample(BatchSampler(), [(context, input_, at)], own)
        return
    for (context, _, _), sample in zip(wanted, samples, strict=True):
        assert context.generation is not None
        context.generation.take_sample(sample)
