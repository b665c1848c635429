"""Contexts of a model on several machines: a step is posted in one turn, and read in another.

Nothing here waits for a machine while other units have work, so a machine that hangs delays no
other model.
"""

from __future__ import annotations

import weakref
from itertools import chain

import mlx.core as mx

from cowmlx.cache.batch import Row, Rows
from cowmlx.generation.pace import pace_of
from cowmlx.machines.network import RemoteLayer, RemoteNetwork, encoded
from cowmlx.scheduling.lane import Lane

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.generation.context import Context
    from cowmlx.generation.generation import Generation
    from cowmlx.generation.sampling.samples import Step
    from cowmlx.machines.group import Entry


class RemoteRow(Row):
    """A sequence's row in such a batch.

    Attributes:
        number: its id on ranks.
        nbytes: of its sequence, as far as ranks have reported them.
    """

    __slots__ = ("nbytes", "number")

    def __init__(self, number: int, index: int, length: int, nbytes: int) -> None:
        super().__init__(index, length)
        self.number = number
        self.nbytes = nbytes


class RemoteBatch:
    """Several sequences, for ranks to step at once; every change is an entry of their log.

    Args:
        network: whose sequences these are.
    """

    def __init__(self, network: RemoteNetwork) -> None:
        self.rows = Rows()  # in the order of the ranks'
        self._network = network
        self._id = next(network.ids)
        network.note({"op": "batch", "id": self._id})
        weakref.finalize(self, network.group.drop, self._id).atexit = False

    def join(self, layers: list[RemoteLayer], length: int) -> RemoteRow:
        """Move a sequence of ``length`` tokens into a new row."""
        (layer,) = layers
        row = RemoteRow(next(self._network.ids), len(self.rows.all), length, layer.nbytes)
        self._note("join", row, id=layer.id, length=length)
        self.rows.add(row)
        return row

    def take(self, row: RemoteRow) -> list[RemoteLayer]:
        """Return a copy of a row's layers as those of a sequence."""
        layer = RemoteLayer(self._network, row.length, row.nbytes)
        self._note("take", row, id=layer.id)
        return [layer]

    def give_up(self, row: RemoteRow) -> list[RemoteLayer]:
        """Return a row's layers as those of a sequence, without the row."""
        layers = self.take(row)
        self.leave(row)
        return layers

    def leave(self, row: RemoteRow) -> None:
        """Give up a row; the last one takes its place."""
        self._note("leave", row)
        self.rows.remove(row)

    def step(self, rows: list[RemoteRow], tokens: list[int]) -> Entry:
        """Feed a token to each row; ranks answer with their logits, in this order.

        Raises:
            Lost: a rank is.
        """
        network = self._network
        head = {"op": "step", "batch": self._id, "rows": [row.number for row in rows]}
        entry = network.group.post(head, encoded(tokens), network.facts.size(len(rows)))
        self._note_fed(rows, [1] * len(rows))
        return entry

    def feed(self, rows: list[RemoteRow], tokens: list[list[int]]) -> Entry:
        """Feed a list of tokens to each row; their logits are not computed.

        Raises:
            Lost: a rank is.
        """
        head = {"op": "feed", "batch": self._id, "rows": [row.number for row in rows]}
        head |= {"counts": [len(ids) for ids in tokens]}
        entry = self._network.group.post(head, encoded([*chain(*tokens)]), 0)
        self._note_fed(rows, [len(ids) for ids in tokens])
        return entry

    def _note_fed(self, rows: list[RemoteRow], counts: list[int]) -> None:
        for row in self.rows.all:
            row.missed += 1
        for row, count in zip(rows, counts, strict=True):
            row.length += count
            row.missed = 0

    def can_take_back(self, row: RemoteRow, more: int) -> bool:
        """Whether ``more`` further tokens of a row could be dropped again."""
        facts = self._network.facts
        return facts.trims and (facts.window is None or row.length + more < facts.window)

    def drop(self, row: RemoteRow, count: int) -> bool:
        """Return false: ranks drop the tokens of sequences alone."""
        return False

    def nbytes_of(self, row: RemoteRow) -> int:
        """Return the bytes of a row's sequence, as far as ranks have reported them."""
        return row.nbytes

    def _note(self, operation: str, row: RemoteRow, **arguments: Any) -> None:
        head = {"op": operation, "batch": self._id, "row": row.number, **arguments}
        self._network.note(head)


WAIT_SECONDS = 0.002  # for ranks, at most, before requests of hosts are looked for


class Flight:
    """A step that ranks are taking.

    Args:
        entry: of their log.
        contexts: whose step it is.
        arrive: reads it, given the lane, the flight and its logits (rows, V), or None without
            any. It must not refer to the lane, which would live until a garbage collection.
    """

    def __init__(
        self,
        entry: Entry,
        contexts: list[Context],
        arrive: Callable[[RemoteLane, Flight, mx.array | None], None],
    ) -> None:
        self.entry = entry
        self.arrive = arrive
        self._steps: list[tuple[Context, Generation | None]] = [
            (context, context.generation) for context in contexts
        ]

    def flies(self, context: Context) -> bool:
        """Whether a context still waits for it; its generation may have ended."""
        generation = context.generation
        if generation is None or generation.ended:
            return False
        return any(owner is context and of is generation for owner, of in self._steps)

    @property
    def contexts(self) -> list[Context]:
        """The contexts that still wait for it."""
        return [context for context, _ in self._steps if self.flies(context)]


class RemoteLane(Lane):
    """A lane whose steps run on ranks, one at a time."""

    _flight: Flight | None = None

    @property
    def _network(self) -> RemoteNetwork:
        network: Any = self.model.network
        return network

    # ------------------------------------------------------------------ Turns

    def _take_turn(self) -> bool:
        """Read the step under way if it has been taken; without one, let a context begin one."""
        if self._flight is None:
            return super()._take_turn()
        self._network.group.poll()
        if self._land():
            return True
        served = [context.attend() for context in list(self.contexts)]
        return any(served)

    def block(self) -> bool:
        """Wait a little for the step under way; false if there is none."""
        if self._flight is None:
            return False
        self._network.group.poll(WAIT_SECONDS)
        return self.turn() or True

    def _land(self) -> bool:
        """Read the step under way if it is taken or lost; false if it is neither."""
        flight, network = self._flight, self._network
        assert flight is not None
        taken, lost = 0 in flight.entry.answers, network.group.lost
        if not taken and lost is None:
            return False
        self._flight = None
        contexts = flight.contexts
        try:
            if taken:
                logits = network.logits(flight.entry) if flight.entry.size else None
                for context in contexts:
                    context.sequence.note_bytes(network.bytes_held(flight.entry))
                with mx.stream(self.stream):
                    flight.arrive(self, flight, logits)
            else:
                raise lost  # type: ignore[misc]
        except BaseException as error:  # ends these generations, and nothing else
            for context in contexts:
                context.fail(error)
        for context in contexts:
            context.attend()
        return True

    # ------------------------------------------------------------------ Steps

    def _new_batch(self, context: Context) -> RemoteBatch:
        return RemoteBatch(self._network)

    def _step_alone(self, context: Context) -> None:
        generation = context.generation
        assert generation is not None
        context.sequence.has_left = False  # ranks have the layers
        with mx.stream(self.stream):
            if generation.prefilling:
                self._post_chunk(context, generation)
            elif draft := generation.next_draft():
                self._post_draft(context, generation, draft)
            else:
                self._post_steps([context], lambda tokens: self._feed(context, tokens))

    def _step(self, contexts: list[Context]) -> None:
        batch = self._batch
        self._post_steps(
            contexts,
            lambda tokens: batch.step([token.sequence.row for token in tokens], [*tokens.values()]),
        )

    @staticmethod
    def _feed(context: Context, tokens: dict[Context, int]) -> Entry:
        return context.sequence.remote_forward([tokens[context]], 1)

    def step_drafts(self, context: Context) -> list[Context]:
        """Return none: drafts are checked one after the other."""
        return []

    def _post_steps(
        self, contexts: list[Context], feed: Callable[[dict[Context, int]], Entry]
    ) -> None:
        """Begin a decode step of each context.

        Args:
            contexts: of the steps.
            feed: posts their tokens.
        """
        taken: list[tuple[Context, Step]] = []
        for context in contexts:
            assert context.generation is not None
            taken.append((context, context.generation.prepare()))
            context.generation.batched += len(contexts) > 1
        self.read([turn for turn in taken if not turn[1].feeds])
        fed = [turn for turn in taken if turn[1].feeds]
        tokens = {context: step.pending.value() for context, step in fed}
        if not fed:
            return
        try:
            entry = feed(tokens)
        except BaseException as error:
            for context, _ in fed:
                context.fail(error)
            return
        for context, step in fed:
            context.generation.hold(step)  # type: ignore[union-attr]

        def arrive(lane: RemoteLane, flight: Flight, logits: mx.array | None) -> None:
            assert logits is not None
            rows = [row for row, (context, _) in enumerate(fed) if flight.flies(context)]
            still = [fed[row] for row in rows]
            if still:
                lane._samples.follow(still, rows, logits)
                lane.read(still)

        self._flight = Flight(entry, [*tokens], arrive)

    def _post_chunk(self, context: Context, generation: Generation) -> None:
        """Begin a chunk of a prompt."""
        pace = pace_of(self.model)
        position = len(context.sequence.tokens)
        chunk = generation.next_chunk(min(self.most(context), pace.size(position)))
        if not chunk:
            return
        last = len(chunk) == generation.prompt.left
        entry = context.sequence.remote_forward(chunk, int(last))
        generation.prompt.hold(chunk)

        def arrive(lane: RemoteLane, flight: Flight, logits: mx.array | None) -> None:
            if not flight.flies(context):
                return
            if logits is not None:
                lane._samples.follow([(context, None)], [0], logits)
            generation.finish_chunk()
            seconds = entry.answers[0].get("seconds")
            if isinstance(seconds, float) and seconds > 0:
                pace.observe(len(chunk), position, seconds)

        self._flight = Flight(entry, [context], arrive)

    def _process(self, contexts: list[Context]) -> None:
        """Begin short prompts: all but the last token of each, then the last ones."""
        generations: list[Any] = [context.generation for context in contexts]
        rest = [generation.prompt.all_but_last() for generation in generations]
        if not any(rest):
            self._feed_last(contexts)
            return
        entry = self._batch.feed([context.sequence.row for context in contexts], rest)
        for generation, ids in zip(generations, rest, strict=True):
            generation.prompt.hold(ids)

        def arrive(lane: RemoteLane, flight: Flight, logits: mx.array | None) -> None:
            still = [context for context in contexts if flight.flies(context)]
            if still:
                lane._feed_last(still)

        self._flight = Flight(entry, contexts, arrive)

    def _feed_last(self, contexts: list[Context]) -> None:
        """Begin the last tokens of short prompts."""
        generations: list[Any] = [context.generation for context in contexts]
        last = [generation.prompt.last() for generation in generations]
        entry = self._batch.step([context.sequence.row for context in contexts], last)
        for generation, token in zip(generations, last, strict=True):
            generation.prompt.hold([token])

        def arrive(lane: RemoteLane, flight: Flight, logits: mx.array | None) -> None:
            assert logits is not None
            rows = [row for row, context in enumerate(contexts) if flight.flies(context)]
            still = [contexts[row] for row in rows]
            if still:
                lane.sample_first(still, rows, logits)
            for context in still:
                context.generation.finish_chunk()  # type: ignore[union-attr]

        self._flight = Flight(entry, contexts, arrive)

    def _post_draft(self, context: Context, generation: Generation, ids: list[int]) -> None:
        """Begin to check a draft."""
        entry = context.sequence.remote_forward(ids, len(ids))
        generation.hold_draft(ids)

        def arrive(lane: RemoteLane, flight: Flight, logits: mx.array | None) -> None:
            if flight.flies(context) and logits is not None:
                generation.check_draft(ids, logits)

        self._flight = Flight(entry, [context], arrive)
