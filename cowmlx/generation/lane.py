"""Contexts that generate with the same weights, decoded as one batch."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import mlx.core as mx

from cowmlx import failures
from cowmlx.cache.batch import Batch
from cowmlx.errors import Unsupported
from cowmlx.generation.draw import BestOfRows, Draw, RowDraw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.cache.layers import KVQuantization
    from cowmlx.generation.context import Context
    from cowmlx.generation.draw import Step
    from cowmlx.models.model import Model
    from cowmlx.streams import StreamPool

    # A model, how keys and values are stored, and whether it is background work.
    Key = tuple[int, tuple[int, int], bool]

AHEAD = 4  # tokens that may wait for a host in a batch: it joins steps that others ask for
PATIENCE = 32  # steps of the batch that a row sits out before it has to leave

# Why contexts of a model are not batched, or None, by how their keys and values are stored (bits,
# group size); found out once.
_known: WeakKeyDictionary[Model, dict[tuple[int, int], str | None]] = WeakKeyDictionary()


class Lane:
    """Steps the contexts of one model and kind of cache, adapter included, that want to decode.

    A context joins when another one decodes too, and leaves when it has ended or wants its
    layers; what it does alone, it does on its own stream. Joining and leaving copy its own row
    and nobody else's.

    Args:
        model: with or without an adapter.
        kv: how its contexts store keys and values.
        stream: of its own.
    """

    def __init__(self, model: Model, kv: KVQuantization, stream: mx.Stream) -> None:
        self.model = model
        self.stream = stream
        self.kv = kv
        self.contexts: list[Context] = []
        self._batch: Batch | None = None
        self._missed: WeakKeyDictionary[Context, int] = WeakKeyDictionary()

    def step(self, context: Context) -> list[Context]:
        """Take a step of a context and of all that can go along.

        Returns:
            whose step it was; none if the context has to step alone.
        """
        seated = [other for other in self.contexts if other.sequence.row is not None]
        others = [
            other
            for other in self.contexts
            if other is not context and other.decodes and other.goes_along(AHEAD)
        ]
        if not others and (context.sequence.row is None or len(seated) < 2):
            context.sequence.part()
            return []
        with mx.stream(self.stream):
            if why_not(self.model, self.kv) is not None:
                return []
            stepped = [other for other in (context, *others) if self._seat(other)]
            if context not in stepped:
                return []
            self._step(stepped)
        self._dismiss(stepped)
        return stepped

    def _seat(self, context: Context) -> bool:
        """Give a context a row, if it has none; false if it does not fit."""
        if context.sequence.row is not None:
            return True
        if self._batch is None or not self._batch.rows.all:
            self._batch = Batch(context.sequence.make_layers(), self.stream)
        if not self._batch.has_place(len(context.sequence.tokens)):
            return False
        try:
            context.sequence.join(self._batch)
        except Unsupported as error:
            context.alone = str(error)
        except Exception as error:  # what a cache makes of a batch it does not expect
            failures.reraise_shortage(error)
            context.alone = f"its cache does not take batches: {type(error).__name__}"
        return context.alone is None

    def _step(self, contexts: list[Context]) -> None:
        """Start the steps after the pending tokens, then read these."""
        batch = self._batch
        assert batch is not None
        taken: list[tuple[Context, Step]] = []
        for context in contexts:
            assert context.generation is not None
            taken.append((context, context.generation.prepare()))
            context.generation.batched += len(contexts) > 1
        fed = [(context, step) for context, step in taken if step.feeds]
        if fed:
            # Rows move when one leaves, so where they stand is noted first.
            rows = [context.sequence.row.index for context, _ in fed]  # type: ignore[union-attr]
            try:
                logits = self._forward(batch, fed)
            except BaseException as error:  # the layers may be out of step
                for context, _ in fed:
                    context.fail(error)
                fed, taken = [], [each for each in taken if not each[1].feeds]
            else:
                self._follow(fed, rows, logits)
        for context, step in taken:
            try:
                if context.generation is not None and not context.generation.ended:
                    context.generation.read(step)
            except BaseException as error:  # ends this generation, and nothing else
                context.fail(error)

    def _forward(self, batch: Batch, fed: list[tuple[Context, Step]]) -> mx.array:
        """Feed the pending tokens; returns logits (B, V), lazily."""
        pending: dict[int, Draw] = {}
        for context, step in fed:
            row = context.sequence.row
            assert row is not None
            pending[row.index] = step.pending
        batch.begin_step([context.sequence.row for context, _ in fed])  # type: ignore[misc]
        ids = _ids(pending, len(batch.rows.all))
        logits = self.model.network(ids[:, None], cache=batch.layers)[:, -1, :]
        batch.end_step()
        return logits

    def _follow(self, fed: list[tuple[Context, Step]], rows: list[int], logits: mx.array) -> None:
        """Start drawing what comes next, for those that take the best all at once."""
        best: BestOfRows | None = None
        arrays: dict[Context, tuple[mx.array, ...]] = {}
        for (context, step), row in zip(fed, rows, strict=True):
            generation = context.generation
            assert generation is not None
            own = logits[row : row + 1]
            try:
                if generation.takes_the_best:
                    if best is None:
                        best = BestOfRows(mx.argmax(logits, axis=-1))
                    generation.follow(step, own, RowDraw(best, row, own))
                    arrays[context] = (best.tokens,)
                else:
                    arrays[context] = generation.follow(step, own)
            except BaseException as error:  # ends this generation, and nothing else
                context.fail(error)
        try:
            mx.async_eval(*arrays.values())
        except BaseException:  # find out whose it is
            for context, own_arrays in arrays.items():
                try:
                    mx.async_eval(*own_arrays)
                except BaseException as error:
                    context.fail(error)

    def _dismiss(self, stepped: list[Context]) -> None:
        """Let rows go whose generations have ended, or whose hosts have long not come back."""
        for context in list(self.contexts):
            if context.sequence.row is None:
                continue
            missed = 0 if context in stepped else self._missed.get(context, 0) + 1
            self._missed[context] = missed
            if missed > PATIENCE or not context.decodes:
                try:
                    context.sequence.part()
                except BaseException as error:  # of this one's layers
                    context.fail(error)


class Lanes:
    """Where contexts work: each on a stream of its own, and in a lane with others of its kind.

    A lane is for a model, adapter included, and a kind of cache. A context comes when it has work
    and goes with it, so idle ones have no stream, which would be a thread, and no step looks at
    them. Background work has lanes of its own.

    Args:
        streams: where contexts and lanes get theirs.
    """

    def __init__(self, streams: StreamPool) -> None:
        self._streams = streams
        self._lanes: dict[Key, Lane] = {}

    @property
    def idle_stream(self) -> mx.Stream:
        """What is computed for contexts that have no stream, and waited for."""
        return mx.default_stream(self._streams.device)

    def enter(self, context: Context) -> mx.Stream:
        """Let a context work, and be batched with others of its model; returns its stream.

        Raises:
            OutOfMemory: a stream's thread cannot be started; nothing has changed.
        """
        stream = self._streams.take()
        try:
            key = _key(context.model, context.params.kv, context)
            if key not in self._lanes:
                self._lanes[key] = Lane(context.model, context.params.kv, self._streams.take())
        except BaseException:
            self._streams.give_back(stream)
            raise
        context.lane = self._lanes[key]
        context.lane.contexts.append(context)
        return stream

    def exit(self, context: Context, stream: mx.Stream) -> None:
        """Take a context's stream back, once its layers are in no batch."""
        self._streams.give_back(stream)
        lane, context.lane = context.lane, None
        if lane is None:
            return
        lane.contexts.remove(context)
        if not lane.contexts:
            self._streams.give_back(lane.stream)
            del self._lanes[_key(lane.model, lane.kv, context)]


def _key(model: Model, kv: KVQuantization, context: Context) -> Key:
    """Return what contexts have in common that share a lane."""
    return model.serial, kv.key, context.priority < 0


def _ids(pending: dict[int, Draw], count: int) -> mx.array:
    """Return (B,) the tokens to feed; rows that have none get any."""
    first = pending.get(0)
    if isinstance(first, RowDraw) and first.best.tokens.size == count:
        in_place = (
            isinstance(draw, RowDraw) and draw.best is first.best and draw.row == index
            for index, draw in pending.items()
        )
        if all(in_place):
            return first.best.tokens
    nothing = mx.array([0], mx.uint32)
    rows = [pending[index].token if index in pending else nothing for index in range(count)]
    return mx.concatenate([row.astype(mx.uint32) for row in rows])


def known_why_not(model: Model, kv: KVQuantization) -> str | None:
    """Return why contexts of a model are not batched, as far as that is known, or None."""
    return _known.get(model, {}).get(kv.key)


def why_not(model: Model, kv: KVQuantization) -> str | None:
    """Return why a model cannot be batched, or None: two rows must give what they give alone."""
    known = _known.setdefault(model, {})
    if kv.key not in known:
        try:
            known[kv.key] = _prove(model, kv.maker(model))
        except Exception as error:  # what an architecture makes of a batch it does not expect
            failures.reraise_shortage(error)
            reason = str(error) if isinstance(error, Unsupported) else f"{type(error).__name__}"
            known[kv.key] = f"its network does not take batches: {reason}"
    return known[kv.key]


def _prove(model: Model, make_layers: Callable[[], list[Any]]) -> str | None:
    """Step two rows of different length together and alone, and compare their logits."""
    prompts = [[0, 1, 2], [1, 0]]
    steps = [[3, 1], [2, 0]]
    batch = Batch(make_layers(), mx.default_stream(mx.default_device()))
    alone = []
    for prompt in prompts:
        layers = make_layers()
        model.network(mx.array([prompt]), cache=layers)
        batch.join(layers, len(prompt))
        alone.append(layers)
    for tokens in zip(*steps, strict=True):
        batch.begin_step(batch.rows.all)
        together = model.network(mx.array(tokens)[:, None], cache=batch.layers)[:, -1, :]
        batch.end_step()
        apart = mx.concatenate(
            [
                model.network(mx.array([[token]]), cache=layers)[:, -1, :]
                for token, layers in zip(tokens, alone, strict=True)
            ]
        )
        together, apart = together.astype(mx.float32), apart.astype(mx.float32)
        scale = mx.maximum(mx.max(mx.abs(apart)), 1e-6)
        worst = (mx.max(mx.abs(together - apart)) / scale).item()
        if not worst < 0.02:  # type: ignore[operator]
            return "its network gives other results in a batch"
    return None
