"""Contexts that generate with the same weights, decoded as one batch."""

from __future__ import annotations

from functools import cached_property
from math import inf
from time import perf_counter

import mlx.core as mx

from cowmlx import failures
from cowmlx.accelerate.fused.decode import logits_behind
from cowmlx.cache.footprint import footprint_of
from cowmlx.cache.trimming import can_trim_all
from cowmlx.errors import Unsupported
from cowmlx.generation.batched import feed, why_no_prompts, why_not
from cowmlx.generation.pace import PREFILL_CHUNK, SMALL_CHUNK, pace_of
from cowmlx.generation.sampling.samples import stacked
from cowmlx.scheduling.draft_steps import DraftSteps
from cowmlx.scheduling.row_samples import RowSamples
from cowmlx.scheduling.streams import clear_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.cache.batch import Batch
    from cowmlx.cache.layers import KVQuantization
    from cowmlx.generation.context import Context
    from cowmlx.generation.sampling.samples import Sample, Step
    from cowmlx.models.model import Model


AHEAD = 4  # tokens that may wait for a host in a batch: it joins steps that others ask for
PATIENCE = 32  # steps of the batch that a row sits out before it has to leave
CLEAR_INTERVAL = 256  # steps between returns of mlx's unused buffers, as in mlx-lm
RETRY = 0.25  # seconds until it is seen again whether a batch has room for another row


class Lane:
    """The contexts of one model (with its adapter) and kind of cache that have work: a unit.

    In its turn the context that has waited longest steps, together with all that can use the step:
    tokens are generated, and short prompts processed, as one batch. A context joins the batch when
    another one can step with it, and leaves when it has ended or needs its layers; alone it works
    on its stream. Joining and leaving copy one row.

    Args:
        model: with or without an adapter.
        kv: how its contexts store keys and values.
        priority: below 0 for background work.
        stream: of the batch.
        has_room: whether so many bytes can be taken at ease.

    Attributes:
        contexts: the one that has waited longest first.
        spoiled: a context's failure that leaves the whole batch unknown.
    """

    shares_time = False
    patience = 0.0
    due = wakes = inf

    def __init__(
        self,
        model: Model,
        kv: KVQuantization,
        priority: int,
        stream: mx.Stream,
        has_room: Callable[[int], bool],
    ) -> None:
        self.model = model
        self._has_room = has_room
        self._full_until = -inf  # there is no room for another row before
        self.stream = stream
        self.kv = kv
        self.priority = priority
        self.contexts: list[Context] = []
        self.spoiled: BaseException | None = None
        self._turns = False  # whether a turn is under way
        self._steps = 0
        self._batch: Any = None
        self._samples = RowSamples()

    # ------------------------------------------------------------------ Turns

    @property
    def finished(self) -> bool:
        """Whether no context has work."""
        return not self.contexts

    def block(self) -> bool:
        """Return false: its turns wait themselves."""
        return False

    def attend(self) -> None:
        """Handle cancels and deadlines, without a step."""
        for context in list(self.contexts):
            context.attend()

    def turn(self) -> bool:
        """Let contexts step together, or serve a call; false if there is nothing to do."""
        self._turns = True
        try:
            return self._take_turn()
        finally:
            self._turns = False
            self._end_spoiled()

    def _take_turn(self) -> bool:
        return any(self._turn_of(context) for context in list(self.contexts))

    def _turn_of(self, context: Context) -> bool:
        """Serve a context's call and let it step; false if it needed neither."""
        self._end_spoiled()
        try:
            served = context.serve()
            if context.generation is None or not context.generation.wants_step:
                context.settle()
                return served
            together = self._step_together(context)
            if not together and not context.generation.ended:  # it may have failed as it joined
                self._step_alone(context)
        except BaseException as error:  # ends this generation, and nothing else
            context.fail(error)
            together = []
        self._end_spoiled()  # before hosts get pieces
        self._steps += 1
        if self._steps % CLEAR_INTERVAL == 0:
            mx.clear_cache()
        stepped = together or [context]
        behind = set(map(id, stepped))
        self.contexts = [other for other in self.contexts if id(other) not in behind] + stepped
        for other in stepped:
            other.attend()
        return True

    def spoil(self, error: BaseException) -> None:
        """End all generations of the batch: mlx reports to one alone that a step has failed.

        A turn that is under way does that where it uses no rows.
        """
        if self.spoiled is None:
            self.spoiled = error
            if not self._turns:
                self._end_spoiled()

    def _end_spoiled(self) -> None:
        """End all generations of a batch that is unknown."""
        error = self.spoiled
        if error is None:
            return
        for context in list(self.contexts):
            if context.shares_steps:
                context.fail(error)
        self._batch = self.spoiled = None
        clear_error(self.stream)

    def _step_together(self, context: Context) -> list[Context]:
        """Step, or process a short prompt, together with others; returns those that did."""
        if _decodes(context):
            return self.step(context)
        if _drafts(context):
            return self.step_drafts(context)
        return self.begin(context) if _short_prompt(context) else []

    def _step_alone(self, context: Context) -> None:
        """Wait for a chunk of a context's prompt and start the next, or generate a token."""
        generation = context.generation
        assert generation is not None
        with mx.stream(context.stream()):
            if not generation.prefilling:
                generation.decode()
                context.sequence.has_left = False  # the token of the batch's last step is read
                return
            if generation.advance_chunk():
                return
            pace = pace_of(self.model)
            size, position, seconds = generation.finish_chunk()
            if size and not generation.awaits_host:  # whose logits may not be computed
                context.sequence.has_left = False
            if len(self.contexts) == 1 and seconds is not None:  # nothing else computes
                pace.observe(size, position, seconds)
            if generation.prefilling and context.cancel_epoch() == generation.cancel_epoch:
                position = len(context.sequence.tokens)
                generation.start_chunk(min(self.most(context), pace.size(position)))

    def most(self, context: Context) -> int:
        """Return how many tokens of a prompt to process in a turn at most."""
        if context.alone is not None:  # the same regardless of load
            return context.largest_chunk
        crowded = any(map(_decodes, self.contexts))
        return min(SMALL_CHUNK if crowded else PREFILL_CHUNK, context.largest_chunk)

    # ----------------------------------------------------------- Steps together

    def step(self, context: Context) -> list[Context]:
        """Step a context together with all that can use the step.

        Returns:
            those that stepped; none if the context has to step alone.
        """
        others = [other for other in self.contexts if other is not context and _goes_along(other)]
        others = [other for other in others if _decodes(other)]
        if not others and (context.sequence.row is None or self._batched() < 2):
            context.sequence.leave_batch()
            return []
        with mx.stream(self.stream):
            if why_not(self.model, self.kv) is not None:
                return []
            stepped = self._join_all([context, *others])
            if context not in stepped:
                return []
            self._step(stepped)
        self._dismiss()
        return stepped

    def step_drafts(self, context: Context) -> list[Context]:
        """Check a context's draft together with those of all that can use the step.

        Returns:
            those that stepped; none if the context has to step alone.
        """
        others = [each for each in self.contexts if each is not context and _goes_along(each)]
        others = [each for each in others if _drafts(each)]
        if not others or not self._drops_drafts:
            context.sequence.leave_batch()
            return []
        with mx.stream(self.stream):
            if why_not(self.model, self.kv) or why_no_prompts(self.model, self.kv):
                return []
            stepped = [each for each in (context, *others) if self._join(each)]
            if context not in stepped:
                return []
            DraftSteps(self, self._batch, self._samples).take(stepped)
        self._dismiss()
        return stepped

    @cached_property
    def _drops_drafts(self) -> bool:
        """Whether rows can drop drafts; windows, which cannot once full, take one token a step."""
        return can_trim_all(self.kv.maker(self.model)())

    def _batched(self) -> int:
        """Return how many contexts have a row."""
        return sum(context.sequence.row is not None for context in self.contexts)

    def begin(self, context: Context) -> list[Context]:
        """Process a short prompt together with those of other contexts.

        Returns:
            those contexts; none if this one has to process its prompt alone.
        """
        limit = min(self.most(context), pace_of(self.model).size(0))
        chosen = self._prompts_with(context, limit)
        if len(chosen) < 2:
            return []
        with mx.stream(self.stream):
            if why_not(self.model, self.kv) or why_no_prompts(self.model, self.kv):
                return []
            together = self._join_all(chosen)
            if context not in together:
                return []
            self._process(together)
        return together

    def _prompts_with(self, context: Context, limit: int) -> list[Context]:
        """Return the contexts whose prompts are worth processing with a context's, and itself.

        Weights are read once for all of them: eight prompts of 8 to 16 tokens of a model of 15M
        parameters take half the time on a CPU that they take one after the other in a lane, such
        of 64 a third more.

        Args:
            context: with a short prompt.
            limit: tokens that one turn may process, the padding of shorter prompts included.
        """
        chosen, width = [context], _short_prompt(context)
        waiting = [each for each in self.contexts if each is not context and _awaits_prompt(each)]
        for other in sorted(waiting, key=_short_prompt):
            wider = max(width, _short_prompt(other))
            if wider * (len(chosen) + 1) > limit:
                break
            chosen.append(other)
            width = wider
        paused = {id(each) for each in self.contexts if each.sequence.row is not None}
        paused -= set(map(id, chosen))
        # The network computes for every row of the batch, so too many that pause cost the gain.
        return chosen if len(chosen) > max(1, len(paused)) else [context]

    def _process(self, contexts: list[Context]) -> None:
        """Process the remaining prompt tokens of contexts with rows, and start sampling."""
        prompts: list[Any] = [context.generation.prompt for context in contexts]  # type: ignore[union-attr]
        rows: list[Any] = [context.sequence.row for context in contexts]
        rest = [prompt.all_but_last() for prompt in prompts]
        try:
            if any(rest):
                feed(self.model.network, self._batch, rows, rest)
            last = [prompt.last() for prompt in prompts]
            indices = [row.index for row in rows]
            tokens = [[token] for token in last]
            logits = feed(self.model.network, self._batch, rows, tokens)[:, -1, :]
            for prompt, token in zip(prompts, last, strict=True):
                prompt.hold([token])
        except BaseException as error:  # the layers may be out of step
            for context in contexts:
                context.fail(error)
            return
        self.sample_first(contexts, indices, logits)

    def sample_first(self, contexts: list[Context], rows: list[int], logits: mx.array) -> None:
        """Start sampling the first tokens behind prompts.

        Args:
            contexts: of the prompts.
            rows: their indices in the batch.
            logits: (B, V) behind the prompts.
        """
        self._samples.follow([(context, None) for context in contexts], rows, logits)

    def _join_all(self, contexts: list[Context]) -> list[Context]:
        """Give contexts rows, with room made once for all; returns those that have one."""
        missing = [context for context in contexts if context.sequence.row is None]
        if len(missing) < 2:
            return [context for context in contexts if self._join(context)]
        rows = self._open_batch(missing[0]).rows
        longest = max(len(context.sequence.tokens) for context in missing)
        if self._fit(len(rows.all) + len(missing), longest):
            rows.expected = len(rows.all) + len(missing)
        try:
            return [context for context in contexts if self._join(context)]
        finally:
            rows.expected = 0

    def _join(self, context: Context) -> bool:
        """Give a context a row, if it has none; false if it does not fit."""
        if context.sequence.row is not None:
            return True
        rows, length = self._open_batch(context).rows, len(context.sequence.tokens)
        if not rows.has_place(length) or perf_counter() < self._full_until:
            return False
        count = len(rows.all) + 1
        if count > rows.expected and not self._fit(count, length):
            self._full_until = perf_counter() + RETRY
            return False
        try:
            context.sequence.join(self._batch)
        except Exception as error:
            self._note_refused(context, length, error)
            return False
        return True

    def _note_refused(self, context: Context, length: int, error: Exception) -> None:
        """Note why a context of ``length`` tokens has no row: the others continue without it."""
        if len(context.sequence.tokens) != length:  # it was emptied
            context.fail(error)
        elif isinstance(error, Unsupported):
            context.alone = str(error)
        elif failures.is_of_system(error):
            self._full_until = perf_counter() + RETRY
        else:  # of a cache that does not expect batches
            context.alone = f"its cache does not take batches: {type(error).__name__}"

    def _fit(self, count: int, length: int) -> bool:
        """Whether the batch can be copied with so many rows: all have the longest's columns.

        Args:
            count: of the rows.
            length: tokens that the longest of those which join holds.
        """
        if self.model.split is not None:  # its ranks have the caches
            return True
        footprint = footprint_of(self.model, self.kv)
        if footprint is None:
            return True
        longest = max(self._batch.rows.longest, length) + 1
        return self._has_room(count * footprint.cache(longest))

    def _open_batch(self, context: Context) -> Any:
        """Return the batch, a new one for contexts of one's kind if it has no rows."""
        rows = None if self._batch is None else self._batch.rows
        if rows is None or not (rows.all or rows.expected):
            self._batch = self._new_batch(context)
        return self._batch

    def _new_batch(self, context: Context) -> Any:
        """Return an empty batch for contexts of one's kind."""
        from cowmlx.cache.batch import Batch  # late: a context that is alone needs none

        return Batch(context.sequence.make_layers(), self.stream)

    def _step(self, contexts: list[Context]) -> None:
        """Start the steps after the pending tokens, then read these."""
        batch = self._batch
        assert batch is not None
        left = [one for one in self.contexts if one.sequence.has_left and one.sequence.row is None]
        taken: list[tuple[Context, Step]] = []
        for context in contexts:
            assert context.generation is not None
            taken.append((context, context.generation.prepare()))
            context.generation.batched += len(contexts) > 1
        fed = [(context, step) for context, step in taken if step.feeds]
        if fed:
            # Rows move when one leaves, so their indices are noted first.
            rows = [context.sequence.row.index for context, _ in fed]  # type: ignore[union-attr]
            try:
                logits = self._forward(batch, fed)
            except BaseException as error:  # the layers may be out of step
                for context, _ in fed:
                    context.fail(error)
                fed, taken = [], [turn for turn in taken if not turn[1].feeds]
            else:
                self._samples.follow(fed, rows, logits)
        self.read(taken)
        if fed and self.spoiled is None:  # the layers that they left with are computed
            for context in left:
                if context.generation is None or not context.generation.awaits_host:
                    context.sequence.has_left = False

    def read(self, taken: list[tuple[Context, Step]]) -> None:
        """Read the tokens of steps whose successors are computing."""
        if self.spoiled is None:
            self._samples.match(taken)
        for context, step in taken:
            if self.spoiled is not None:  # the tokens of the rest were never computed
                return
            try:
                if context.generation is not None and not context.generation.ended:
                    context.generation.read(step)
            except BaseException as error:  # ends this generation, and nothing else
                context.fail(error)

    def _forward(self, batch: Batch, fed: list[tuple[Context, Step]]) -> mx.array:
        """Feed the pending tokens; returns logits (B, V), lazily."""
        pending: dict[int, Sample] = {}
        for context, step in fed:
            row = context.sequence.row
            assert row is not None
            pending[row.index] = step.pending
        batch.begin_step([context.sequence.row for context, _ in fed])  # type: ignore[misc]
        ids = stacked([pending.get(index) for index in range(len(batch.rows.all))])
        logits = logits_behind(self.model.network, ids, batch.layers, batch.rows.shifts)
        batch.end_step()
        return logits

    def _dismiss(self) -> None:
        """Drop rows whose generations have ended, or whose hosts have paused for long."""
        if self.spoiled is not None:  # all rows end
            return
        for context in tuple(self.contexts):
            row = context.sequence.row
            stays = _decodes(context) or _drafts(context)
            if row is not None and (row.missed > PATIENCE or not stays):
                try:
                    context.sequence.leave_batch()
                except BaseException as error:  # of this one's layers
                    context.fail(error)


def _decodes(context: Context) -> bool:
    """Whether a context generates, and in a way that can be batched."""
    generation = context.generation
    return context.alone is None and generation is not None and generation.decoding


def _drafts(context: Context) -> bool:
    """Whether a context generates with drafts, which can be checked with those of others."""
    generation = context.generation
    if context.alone is not None or generation is None or generation.drafts is None:
        return False
    return not (generation.drafts.alone or generation.prefilling or generation.ended)


def _goes_along(context: Context) -> bool:
    """Whether a context can use a step of its kind that another one asks for."""
    generation = context.generation
    if generation is None or not (_decodes(context) or _drafts(context)):
        return False
    generation.note_taken()
    return generation.hungry or generation.has_room(AHEAD)


def _short_prompt(context: Context) -> int:
    """Return how many tokens of a prompt can be processed together with others; 0: none."""
    if context.alone is not None or context.generation is None:
        return 0
    return context.generation.short_prompt


def _awaits_prompt(context: Context) -> bool:
    """Whether a context's host waits for a short prompt."""
    generation = context.generation
    return generation is not None and _short_prompt(context) > 0 and generation.hungry
