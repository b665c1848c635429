"""Steps of a batch in which rows check drafts."""

from __future__ import annotations

from cowmlx.generation.batched import feed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.cache.batch import Batch
    from cowmlx.generation.context import Context
    from cowmlx.generation.sampling.samples import Step
    from cowmlx.scheduling.lane import Lane
    from cowmlx.scheduling.row_samples import RowSamples


class DraftSteps:
    """One pass over the drafts of several contexts, and over the next tokens of those without.

    Args:
        lane: of the contexts.
        batch: in which all contexts have rows.
        samples: for the contexts.
    """

    def __init__(self, lane: Lane, batch: Batch, samples: RowSamples) -> None:
        self._lane = lane
        self._batch = batch
        self._samples = samples

    def take(self, contexts: list[Context]) -> None:
        """Step the contexts. A failure of one ends its generation alone."""
        together = len(contexts) > 1
        drafted: list[tuple[Context, list[int]]] = []
        plain: list[tuple[Context, Step]] = []
        for context in contexts:
            generation = context.generation
            assert generation is not None
            try:
                if ids := generation.next_draft():
                    drafted.append((context, ids))
                else:
                    generation.batched += together
                    plain.append((context, generation.prepare()))
            except BaseException as error:
                context.fail(error)
            if self._lane.spoiled is not None:
                return
        self._feed(drafted, [turn for turn in plain if turn[1].feeds], together)
        self._lane.read([turn for turn in plain if not turn[1].feeds])

    def _feed(
        self,
        drafted: list[tuple[Context, list[int]]],
        fed: list[tuple[Context, Step]],
        together: bool,
    ) -> None:
        """Feed drafts and the tokens of plain steps, then read the results.

        Args:
            drafted: with the tokens to check.
            fed: with their plain steps.
            together: whether several contexts take the step.
        """
        contexts = [context for context, _ in (*drafted, *fed)]
        if not contexts:
            return
        tokens = [ids for _, ids in drafted]
        rows: list[Any] = [context.sequence.row for context in contexts]
        try:
            tokens += [[step.pending.value()] for _, step in fed]
            indices = [row.index for row in rows]
            logits = feed(self._lane.model.network, self._batch, rows, tokens)
        except BaseException as error:  # the layers may be out of step
            for context in contexts:
                context.fail(error)
            return
        if fed:
            self._samples.follow(fed, indices[len(drafted) :], logits[:, 0])
        for (context, ids), row in zip(drafted, indices, strict=False):
            if self._lane.spoiled is not None:  # the rest was never computed
                return
            try:
                generation: Any = context.generation
                generation.hold_draft(ids)
                count = generation.check_draft(ids, logits[row, : len(ids)])
                generation.batched += count if together else 0
            except BaseException as error:
                context.fail(error)
        self._lane.read(fed)
